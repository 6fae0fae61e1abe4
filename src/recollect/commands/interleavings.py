"""`recollect explore --interleavings`: every order of a few concurrent operations, on a real engine."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NoReturn, cast

import typer
from rich.console import Console

from recollect import __version__, exit_codes, private
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.writing import folder_of_run, write_page
from recollect.printable import counted
from recollect.verify.explore.interleavings import telling
from recollect.verify.explore.interleavings.program import BadProgram, ClientsProgram
from recollect.verify.explore.interleavings.results import (
    CONFIRMATIONS,
    HOWS,
    FailedSchedule,
    How,
    InterleavingsAsked,
    InterleavingsFound,
    ProgramExplored,
)
from recollect.verify.explore.interleavings.search import CODE
from recollect.verify.explore.interleavings.words import AllDone, explore_interleavings
from recollect.verify.host import interrupts
from recollect.verify.judging.checkers import ANOMALIES
from recollect.verify.judging.half_turns import INTERLEAVINGS, THEN
from recollect.verify.judging.verdict import Status, exit_code
from recollect.verify.matrix.selection import BadRequest, VerifyRequest, check, engine_of
from recollect.verify.running import scenario as scenarios
from recollect.verify.running import seal
from recollect.verify.running.scenario import Scenario

STOPPED = "it was stopped before the end"
GATED = ("redis", "valkey", "postgres", "sqlite")
"""Engines that can have a gate between them and their clients."""


@dataclass(frozen=True)
class OrdersAsked:
    """What the command line says."""

    target: str
    engine: str | None
    policy: str | None
    hows: Sequence[str]
    programs: Sequence[str]
    cancel: bool
    bound: int
    seconds: float
    replay: str | None
    until: str | None
    json_file: str | None
    html: Path | None
    out: Path | None


def explore_orders(asked: OrdersAsked) -> None:
    console = PlainConsole(stderr=asked.json_file == "-")
    try:
        engine = _checked(asked)
        with interrupts.terminated_like_interrupted(), ExitStack() as held:
            folder = held.enter_context(folder_of_run(asked.out, "interleavings"))
            done = list(_all_explored(console, _questions(asked, engine, folder)))
    except (BadRequest, BadProgram) as bad:
        echo(str(bad), err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    found = [one.found for one in done]
    _write(console, asked, found)
    if any(one.refused for one in done):
        raise typer.Exit(exit_codes.USAGE)
    raise typer.Exit(exit_code([cast(Status, one.status) for one in found]))


def _checked(asked: OrdersAsked) -> str:
    """Refuses what cannot be done before anything starts; returns the engine."""
    policies = (asked.policy,) if asked.policy else ()
    request = VerifyRequest(targets=(asked.target,), engine=asked.engine, policies=policies)
    check(request)
    for how in asked.hows:
        if how not in HOWS:
            raise BadRequest(f"--how {how}: one of {', '.join(HOWS)}")
    if asked.until is not None and asked.until not in ANOMALIES:
        raise BadRequest(f"--until {asked.until}: not an anomaly; there are {', '.join(ANOMALIES)}")
    for text in asked.programs:
        for program in [text] if asked.replay is None else text.split(THEN):
            ClientsProgram.parse(program)
    if asked.replay is not None:
        if len(asked.programs) != 1 or len(asked.hows) != 1:
            raise BadRequest(
                "--replay needs the one --program and the one --how that the schedule belongs to"
            )
        if not _is_schedule(asked.replay.replace("-", "")):
            raise BadRequest(f"--replay {asked.replay}: not a schedule, such as AABBA")
        if asked.replay.count(THEN) != asked.programs[0].count(THEN):
            raise BadRequest(
                f"--replay {asked.replay}: not one schedule for each program of {asked.programs[0]!r}"
            )
    return engine_of(request, asked.target)


def _is_schedule(text: str) -> bool:
    return all("".join(CODE.findall(part)) == part for part in text.split(THEN))


def _questions(asked: OrdersAsked, engine: str, folder: Path) -> list[InterleavingsAsked]:
    gated = engine.partition("@")[0] in GATED and not asked.cancel
    hows: Sequence[str] = asked.hows or (("auto", "processes") if gated else ("auto",))
    replay = None if asked.replay is None else asked.replay.replace("-", "")
    here = (str(Path.cwd()),) if ":" in asked.target else ()  # so that it is found from another folder, too
    return [
        InterleavingsAsked(
            target=asked.target,
            engine=engine,
            how=cast(How, how),
            policy=asked.policy,
            programs=tuple(asked.programs),
            cancel=asked.cancel or any(mark in (replay or "") for mark in "!~"),
            bound=asked.bound,
            seconds=asked.seconds / len(hows),
            replay=replay,
            wanted=asked.until or "",
            folder=str(_own_folder(folder / how)),
            path=here,
        )
        for how in hows
    ]


def _own_folder(path: Path) -> Path:
    private.artifact_folder(path)
    return path


def _all_explored(console: Console, questions: Sequence[InterleavingsAsked]) -> Iterator[AllDone]:
    """One after the other, until it is stopped, or refused: then the others would be, too. Threads that nobody asked
    for are not held against a store that is not made for them."""
    for place, asked in enumerate(questions, 1):
        done = _explored(console, asked)
        if asked.how == "auto" and done.found.is_of_one_thread and place < len(questions):
            why = "only the thread that opened the store may use it"
            _print(console, f"{asked.target} on {asked.engine}, threads: not explored, because {why}")
            continue
        _show(console, done)
        _save_for_replay(done.found)
        yield done
        if done.refused or done.found.trouble == STOPPED:
            return


def _explored(console: Console, asked: InterleavingsAsked) -> AllDone:
    """If it is stopped, the result says how far it came."""
    began, programs = time.monotonic(), dict[str, ProgramExplored]()
    try:
        with console.status(f"{asked.target} on {asked.engine}, {asked.how}") as status:

            def listener(one: ProgramExplored) -> None:
                programs[one.program] = one
                status.update(f"{one.program}: {one.coverage}, {one.schedules:,} schedules")

            done = explore_interleavings(asked, listener)
    except KeyboardInterrupt:
        so_far = InterleavingsFound(asked=asked, how=asked.how, programs=list(programs.values()))
        so_far.trouble, so_far.elapsed_s = STOPPED, time.monotonic() - began
        done = AllDone(so_far)
    return done


def _save_for_replay(found: InterleavingsFound) -> None:
    """Makes the folder of a failed schedule one that `recollect replay` takes."""
    asked, failure = found.asked, found.failure
    if failure is None:
        return
    scenario = Scenario(
        target=asked.target,
        engine=asked.engine,
        policy=found.policy,
        fault="none",
        workload=INTERLEAVINGS,
        how=found.how,
        program=failure.programs,
        schedule=failure.schedules,
        path=asked.path,
    )
    scenarios.save(scenario, Path(asked.folder))
    seal.write(Path(asked.folder))


def replay_schedule(scenario: Scenario, folder: Path, times: int, json_file: str | None) -> NoReturn:
    """Runs one schedule again, several times, each time on an engine of its own."""
    if scenario.how not in HOWS or not _is_schedule(scenario.schedule):
        echo(f"{folder}: {scenario.how} {scenario.schedule}: not a schedule of this release", err=True)
        raise typer.Exit(exit_codes.USAGE)
    console = PlainConsole(stderr=json_file == "-")
    asked = InterleavingsAsked(
        target=scenario.target,
        engine=scenario.engine,
        how=scenario.how,
        policy=scenario.policy,
        programs=(scenario.program,),
        cancel=any(mark in scenario.schedule for mark in "!~"),
        replay=scenario.schedule,
        folder=str(folder),
        path=scenario.path,
    )
    found = [explore_interleavings(asked) for _ in range(times)]
    _show(console, found[0])
    names = Counter(name for one in found if one.found.failure for name in one.found.failure.names)
    for name, count in names.most_common():
        _print(console, f"{name}: seen in {count} of {times} runs")
    concluded = [one for one in found if one.found.status != "unknown"]
    if len(concluded) < times:
        _print(console, f"nothing could be concluded in {times - len(concluded)} of {counted(times, 'run')}")
    if concluded and not names:
        _print(console, f"no anomaly in {len(concluded)} of {times} runs")
    _write_json(json_file, [one.found for one in found])
    tell_written(console, json_file)
    raise typer.Exit(exit_code([cast(Status, one.found.status) for one in found]))


# ---- what is printed


def _show(console: Console, done: AllDone) -> None:
    found, asked = done.found, done.found.asked
    if done.refused:
        echo(found.reason or "", err=True)
        return
    what = f"{asked.target} on {asked.engine}, {found.how}{' with a cancellation' if asked.cancel else ''}"
    reason = f" ({found.reason})" if found.reason is not None and found.status == "unknown" else ""
    _print(console, f"{what}: {found.status}{reason}")
    if found.failure is not None:
        _show_failure(console, found, found.failure)
    elif done.steps:
        _print(console, telling.columns(asked.programs[0].rpartition(THEN)[2], done.steps))
    if asked.replay is None:
        _print(console, f"Tried: {found.coverage} in {found.elapsed_s:.1f} s.")


def _show_failure(console: Console, found: InterleavingsFound, failure: FailedSchedule) -> None:
    _print(console, f"\n{', '.join(failure.names)}: {telling.sentence(failure)}\n")
    _print(console, telling.columns(failure.program, failure.steps))
    if found.asked.replay is None:
        alike = ", used before in the same way" if failure.past else ""
        _print(
            console,
            f"\nFound at schedule {failure.found_at}; replayed on fresh stores{alike}: {failure.confirmed} of "
            f"{CONFIRMATIONS}. Again with:\n  {replay_command(found, failure)}",
        )
    _print(console, f"Its history: {failure.history}")


def replay_command(found: InterleavingsFound, failure: FailedSchedule) -> str:
    asked = found.asked
    engine = f" --engine {asked.engine}" if ":" in asked.target else ""
    policy = f" --policy {asked.policy}" if asked.policy else ""
    return (
        f"recollect explore {asked.target}{engine}{policy} --interleavings --how {found.how} "
        f"--program '{failure.programs}' --replay '{failure.schedules or '-'}'"
    )


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


# ---- what is written


def document(found: InterleavingsFound) -> dict[str, Any]:
    """One way of exploring one target, for `--json`."""
    failure = found.failure
    return {
        "target": found.asked.target,
        "engine": found.asked.engine,
        "engine_version": found.engine_version,
        "policy": found.policy,
        "how": found.how,
        "cancel": found.asked.cancel,
        "status": found.status,
        "reason": found.reason,
        "coverage": found.coverage,
        "elapsed_s": round(found.elapsed_s, 3),
        "programs": [_program(one) for one in found.programs],
        "failure": None if failure is None else _failure(found, failure),
    }


def _program(one: ProgramExplored) -> dict[str, Any]:
    numbers = (
        "schedules",
        "judged",
        "redundant",
        "histories",
        "exhausted",
        "bound",
        "diverged",
        "unfinished",
    )
    told = {name: getattr(one, name) for name in numbers}
    return {"program": one.program, "coverage": one.coverage, **told, "seconds": round(one.seconds, 3)}


def _failure(found: InterleavingsFound, failure: FailedSchedule) -> dict[str, Any]:
    return {
        "names": list(failure.names),
        "sentence": telling.sentence(failure),
        "program": failure.program,
        "schedule": failure.schedule,
        "past": [{"program": program, "schedule": schedule} for program, schedule in failure.past],
        "preemptions": failure.preemptions,
        "found_at": failure.found_at,
        "confirmed": f"{failure.confirmed} of {CONFIRMATIONS}",
        "history": failure.history,
        "replay": replay_command(found, failure),
        "steps": [step._asdict() for step in failure.steps],
    }


def _write(console: Console, asked: OrdersAsked, found: list[InterleavingsFound]) -> None:
    _write_json(asked.json_file, found)
    if asked.html is not None:
        write_page(_page(found), asked.html)
    tell_written(console, asked.json_file, asked.html)


def _write_json(file: str | None, found: list[InterleavingsFound]) -> None:
    if file is None:
        return
    documents = {"recollect": __version__, "interleavings": [document(one) for one in found]}
    text = json.dumps(documents, indent=2, ensure_ascii=False)
    json_output.write(text, file)


def _page(found: list[InterleavingsFound]) -> str:
    parts = []
    for one in found:
        title = escape(f"{one.asked.target} on {one.asked.engine}, {one.how}: {one.status}")
        parts.append(f"<h1>{title}</h1><p>{escape(one.reason or one.coverage)}</p>")
        if one.failure is not None:
            replay = escape(replay_command(one, one.failure))
            parts.append(f"<p>{escape(telling.sentence(one.failure))}</p>{telling.svg(one.failure)}")
            parts.append(f"<p>{escape(one.coverage)}</p><pre>{replay}</pre>")
    style = "body{font:15px sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}svg{max-width:100%;height:auto}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Interleavings</title><style>{style}</style>'
        f"{''.join(parts)}</html>\n"
    )
