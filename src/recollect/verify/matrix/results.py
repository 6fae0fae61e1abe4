"""The result of a cell and of a whole run: what reports render and what is saved."""

import shlex
import time
from pathlib import Path
from typing import Literal

import msgspec

from recollect import __version__, exit_codes, private
from recollect.errors import shorten
from recollect.guarantees import SURVIVES_IF
from recollect.regular_files import read_file
from recollect.secret import from_json, to_artifact
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from recollect.verify.judging.op import HistoryHeader
from recollect.verify.judging.steps import StepTaken
from recollect.verify.judging.verdict import UNDER_STRICT, WORST_FIRST, Anomaly, Status, Verdict
from recollect.verify.judging.verdict import exit_code as exit_code_of
from recollect.verify.matrix.rates import Repeated
from recollect.verify.running import scenario as saved_scenario
from recollect.verify.running.scenario import Scenario

SUMMARY = "results.json"
HISTORY = "history.jsonl"
INTERRUPTED = "interrupted"
"""The reason of the cells that Ctrl-C or SIGTERM left out."""
BUDGET = "budget"
"""Why a cell was skipped that there was no time for; a later round may have it."""

Require = str
"""``written`` or ``fsynced``: what an acknowledged message must survive for the run to succeed. ``whole-sessions``: a
session may be all there or all gone, never in part."""

WHOLE_SESSIONS = "whole-sessions"
REQUIREMENTS: tuple[Require, ...] = ("written", "fsynced", WHOLE_SESSIONS)


def refused_requirement(require: Require | None) -> str | None:
    """What is wrong with it, or None."""
    if require is None or require in REQUIREMENTS:
        return None
    return f"{require!r}: written or fsynced, or {WHOLE_SESSIONS}"


Trouble = Literal["unopened", "internal"]
"""`unopened`: the target cannot be opened. `internal`: an error in recollect itself."""


class SmallestRun(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest run that still shows what a cell showed, step by step, and where it is kept."""

    scenario: Scenario
    anomaly: Anomaly
    steps: tuple[StepTaken, ...] = ()
    folder: str = ""
    """Relative to the run's folder."""
    shown: tuple[int, int] = (1, 1)
    """In how many of how many runs of this size it was seen."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One cell: its scenario, its verdict, and what running it again showed."""

    scenario: Scenario
    verdict: Verdict
    engine_version: str = ""
    provider: str = ""
    release: str = ""
    """The distribution and version of a target that has a name."""
    traits: tuple[str, ...] = ()
    """What the target says that it does not claim."""
    real_policy: str = ""
    """The policy of the store's own connections, if it differs from the scenario's."""
    elapsed_s: float = 0.0
    operations: int = 0
    folder: str = ""
    """Relative to the run's folder."""
    history: str = ""
    """The path of the history, if it is not in a cell's folder."""
    reproduced: tuple[int, int] | None = None
    """In how many of how many further runs the same anomaly was seen."""
    smallest: Scenario | None = None
    """The smallest schedule that still shows it."""
    smallest_run: SmallestRun | None = None
    shrunk: str = ""
    """How far it was made smaller and why no further, in words."""
    hidden_by: str = ""
    """The folder of the cell whose finding hides anything else this one could show."""
    notes: tuple[str, ...] = ()
    trouble: Trouble | None = None
    """Why the cell says nothing about the store at all, if so."""

    @property
    def given(self) -> str:
        """What the target's messages were, in words, if that had to be tried."""
        return f"given {self.scenario.form}" if self.scenario.form else ""

    @property
    def began(self) -> bool:
        """Whether anything was asked of the store: a cell whose target did not open ran nothing."""
        verdict = self.verdict
        if verdict.status in ("skipped", "unknown"):
            asked = self.operations, verdict.acked, verdict.unknown_outcomes, verdict.failed_outcomes
            return verdict.status == "unknown" and any(asked)
        return True


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A run's findings compared with an earlier run's: numbers for this run's findings, names for the others."""

    new: tuple[int, ...] = ()
    still: tuple[int, ...] = ()
    fixed: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    """Findings of the earlier run whose cells did not run, or concluded nothing."""
    known_cells: tuple[int, ...] = ()
    """Places of violated cells that show nothing new."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    recollect: str = __version__
    seed: int = 0
    date: str = ""
    """When it began, in local time: ``2026-03-01 14:05``."""
    elapsed_s: float = 0.0
    folder: str = ""
    shard: str = ""
    """``2/5``, if this is one part of a run."""
    results: tuple[Result, ...] = ()
    baseline: Compared | None = None
    repeated: Repeated | None = None
    """How often the cells showed what, if there was more than one round."""

    @property
    def known(self) -> frozenset[int]:
        """Places of violated cells that do not fail the run, because the baseline has their findings."""
        return frozenset() if self.baseline is None else frozenset(self.baseline.known_cells)

    @property
    def seeds(self) -> list[int]:
        """All seeds: merged shards may each have had their own."""
        return sorted({result.scenario.seed for result in self.results} or {self.seed})

    @property
    def counts(self) -> dict[Status, int]:
        """How many cells have each verdict, the worst first."""
        return {
            status: count
            for status in WORST_FIRST
            if (count := sum(result.verdict.status == status for result in self.results))
        }

    @property
    def ended_before_faults(self) -> bool:
        """Whether the time was over before the cells without a fault had run, and so before anything happened to the
        store: what held then proves nothing."""
        unseen = any(one.verdict.reason == BUDGET and one.scenario.fault == "none" for one in self.results)
        return unseen and not any(one.began and one.scenario.fault != "none" for one in self.results)

    def reasons(self, status: Status) -> dict[str, list[Result]]:
        """The cells with this verdict by the reason that each gives."""
        groups: dict[str, list[Result]] = {}
        for result in self.results:
            if result.verdict.status == status:
                groups.setdefault(result.verdict.reason or "no reason given", []).append(result)
        return groups

    @property
    def overridden(self) -> list[str]:
        """Which policies did not take, because the stores' own connections have other settings: a sentence for each."""
        real: dict[tuple[str, str], dict[str, None]] = {}
        for result in self.results:
            if result.real_policy:
                offered = real.setdefault((result.scenario.target, result.real_policy), {})
                offered[result.scenario.policy] = None
        return [
            f"{', '.join(offered)} did not take: the connections of {target} are {settings}, and are judged as that"
            for (target, settings), offered in real.items()
        ]

    def column_of(self, result: Result) -> str:
        """Where a table has the cell: its policy, with the engine as it was asked for if its target ran on several."""
        target, policy = result.scenario.target, result.scenario.policy
        engines = {other.scenario.engine for other in self.results if other.scenario.target == target}
        return f"{result.scenario.engine} {policy}" if len(engines) > 1 else policy

    def folder_of(self, result: Result) -> str:
        """The cell's own folder, which can be replayed; empty where it has none."""
        return self.place(result.folder)

    def place(self, folder: str) -> str:
        """The path of a cell's folder, as seen from where the command was given."""
        # In merged shards each cell already has its whole path.
        return f"{self.folder}/{folder}" if self.folder and folder else folder

    def history_of(self, result: Result) -> str | None:
        folder = self.folder_of(result)
        return result.history or (f"{folder}/{HISTORY}" if folder else None)

    def replay_of(self, result: Result) -> str | None:
        """The command that runs the cell again."""
        folder = self.folder_of(result)
        return replay_command(folder) if folder else None

    def save(self, folder: Path) -> None:
        text = msgspec.json.format(msgspec.json.encode(self, enc_hook=to_artifact))
        private.write_artifact(folder / SUMMARY, text)


def load(folder: Path) -> Results:
    """Raises `msgspec.ValidationError`, also if the run names folders outside its own: anybody may have written it."""
    try:
        results = msgspec.json.decode(read_file(folder / SUMMARY), type=Results, dec_hook=from_json)
    except RecursionError:
        raise msgspec.ValidationError(f"{folder / SUMMARY} is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.ValidationError(f"{folder / SUMMARY} is not UTF-8: {error}") from None
    for result in results.results:
        smallest = "" if result.smallest_run is None else result.smallest_run.folder
        for named in (result.folder, result.hidden_by, smallest, result.history):
            if named and not _is_inside(folder, named):
                raise msgspec.ValidationError(
                    f"{folder / SUMMARY} names the folder {shorten(named)}, which is not inside {folder}"
                )
    return results


def _is_inside(folder: Path, named: str) -> bool:
    """Whether it is inside, even when links are followed."""
    try:
        place = (folder / named).resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL, a loop of links
        return False
    return ".." not in Path(named).parts and place.is_relative_to(folder.resolve())


def failed_last(runs: Path) -> frozenset[str]:
    """Names of the scenarios that were violated in the latest run in a folder."""
    saved = sorted(runs.glob(f"*/{SUMMARY}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in saved:
        try:
            latest = load(file.parent)
        except (OSError, msgspec.MsgspecError):
            continue  # somebody else's folder, or another release's
        return frozenset(
            result.scenario.name for result in latest.results if result.verdict.status == "violated"
        )
    return frozenset()


def of_history(path: Path) -> Results:
    """A single history, judged now, as a run of one cell."""
    started = time.monotonic()
    history = History(path)
    header = history.header
    replayable = path.name == HISTORY and (path.parent / "scenario.json").exists()
    result = Result(
        scenario=_described(header, path.parent if replayable else None),
        verdict=analyze(history),
        engine_version=header.engine_version,
        provider=header.provider,
        release=header.release,
        traits=header.traits,
        real_policy=header.real_policy,
        folder=str(path.parent) if replayable else "",
        history=str(path),
    )
    return Results(
        recollect=header.recollect,
        seed=header.seed,
        date=date_of(header.started_s) if header.started_s else "",
        elapsed_s=time.monotonic() - started,
        results=(result,),
    )


def date_of(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def unfinished(folder: Path) -> Results:
    """A cell whose run was stopped before it had a history."""
    verdict = Verdict(status="unknown", reason="it was stopped before its history began")
    scenario = saved_scenario.load(folder)
    result = Result(scenario=scenario, verdict=verdict, folder=str(folder))
    return Results(seed=scenario.seed, results=(result,))


def _described(header: HistoryHeader, folder: Path | None) -> Scenario:
    """As its folder has it, or, without one that fits, as far as the history tells."""
    told = Scenario(
        target=header.target,
        engine=header.engine,
        policy=header.policy,
        fault=header.fault or "none",
        variant=header.variant or "",
        workload=header.workload,
        program=header.program,
        schedule=header.schedule,
        seed=header.seed,
    )
    try:
        found = told if folder is None else saved_scenario.load(folder)
    except (OSError, msgspec.MsgspecError):
        return told
    same = found.target == told.target and found.engine_name == told.engine_name
    return found if same and found.place == told.place else told


def replay_command(folder: str) -> str:
    return f"recollect replay {shlex.quote(folder)}"


def exit_code(results: Results, require: Require | None = None, *, strict: bool = False) -> int:
    """The first that applies: 4 for an error of ours, 1 violated, 2 a target that cannot be opened, 3 unknown,
    interrupted or hardly begun, 0.

    A documented loss that is worse than required counts as violated; with `strict`, so does every documented loss and
    every `exposed`. What the baseline has does not count.
    """
    if not results.results and results.shard:
        return exit_codes.HELD  # the other shards have all the cells
    troubles = {result.trouble for result in results.results}
    if "internal" in troubles:
        return exit_codes.INTERNAL
    code = exit_code_of(
        {
            "held" if place in results.known else result.verdict.status
            for place, result in enumerate(results.results)
        }
    )
    if any(too_bad(result, require, strict) for result in results.results):
        code = exit_codes.VIOLATED
    if code != exit_codes.VIOLATED and "unopened" in troubles:
        return exit_codes.USAGE
    interrupted = any(result.verdict.reason == INTERRUPTED for result in results.results)
    if code == exit_codes.HELD and (interrupted or results.ended_before_faults):
        return exit_codes.INCONCLUSIVE
    return code


def too_bad(result: Result, require: Require | None, strict: bool) -> bool:
    """Whether a cell that is not violated fails the run because `require` or `strict` asks for more."""
    return (strict and result.verdict.status in UNDER_STRICT) or (
        require is not None and worse_than(result, require)
    )


def worse_than(result: Result, require: Require) -> bool:
    """Whether a documented loss took messages that had to survive, or left a session in part."""
    if require == WHOLE_SESSIONS:
        return result.verdict.partly_lost_sessions > 0 and result.verdict.status in UNDER_STRICT
    if result.verdict.status != "documented-loss":
        return False
    needed = SURVIVES_IF.get(result.scenario.fault)
    return needed is not None and (require == "fsynced" or needed == "written")
