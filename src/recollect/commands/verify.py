"""`recollect verify`: puts stores on real engines, breaks them with real faults, and shows what was lost."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from recollect import exit_codes
from recollect.commands import older_data
from recollect.commands.console import PlainConsole, echo
from recollect.commands.faults import show_faults
from recollect.commands.json_output import JsonOption
from recollect.commands.named import names_first
from recollect.commands.writing import (
    RUNS,
    BaselineOption,
    HtmlOption,
    JunitOption,
    RequireOption,
    StrictOption,
    VerboseOption,
    folder_of_run,
    reports_wanted,
    tell,
)
from recollect.secret import SecretUrl
from recollect.verify import durations, engines
from recollect.verify.explore import orders_first
from recollect.verify.host import interrupts
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix import repeating
from recollect.verify.matrix.cell_process import CellProcess, TargetSeen
from recollect.verify.matrix.matrix import Matrix
from recollect.verify.matrix.pool import CellPool
from recollect.verify.matrix.results import Result, Results, Trouble, date_of, exit_code, failed_last
from recollect.verify.matrix.selection import BadRequest, Cell, VerifyRequest, by_engine, check, select
from recollect.verify.matrix.target_probe import OUR_ABILITIES
from recollect.verify.providers import url as addresses
from recollect.verify.report.progress import LiveProgress
from recollect.verify.running.scenario import KINDS
from recollect.verify.running.workloads import WORKLOADS
from recollect.verify.target.registry import BUILT_IN, USUAL

BUDGET_S = 60.0
FIRST_ROUND_SHARE = 0.5
"""The share of `--for` that the first round may take, if that is more than the usual budget."""
_POLICIES = "; ".join(f"{name}: {', '.join(engines.policies(name))}" for name in engines.ENGINES)


def seconds(option: str, text: str) -> float:
    """``60s``, ``5m``, ``7d``: a duration in seconds."""
    try:
        return durations.seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {error}") from None


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise typer.BadParameter(f"--shard {text!r}: a shard is I/N with 1 ≤ I ≤ N, such as 1/4")
    return int(found[1]), int(found[2])


TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TARGET]...",
        help="sqlite, redis, postgres, chroma, redis-cluster, redis-sentinel, postgres-ha, patroni, the name of a "
        "released store (--list), or package.module:factory. None: the first four.",
    ),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option(help="Engine of your own target, with a version if you like: redis@7; repeatable."),
]
EngineConfigOption = Annotated[
    Path | None, typer.Option(help="Your redis.conf or postgresql.conf; the policy is then 'custom'.")
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(help=f"How the engine is set up to keep data; repeatable. {_POLICIES}."),
]
FaultOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What happens to it, such as power-loss or kill-engine@bgsave, a variant; repeatable. --list-faults "
        "shows all."
    ),
]
WorkloadOption = Annotated[
    list[str] | None,
    typer.Option(help=f"What it is used for; repeatable. One of {', '.join(WORKLOADS)}."),
]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(help="One of the ways of its fault (--list-faults); repeatable."),
]
ProviderOption = Annotated[
    str | None,
    typer.Option(
        help="system, wheel, docker, compose:FILE#SERVICE[,OTHER], or the address of an engine that you run; `url` "
        f"takes it from {' or '.join(addresses.VARIABLES.values())}, where `ps` does not show its password."
    ),
]
PreviousOption = Annotated[
    str | None,
    typer.Option(help="The same store's previous release, for older-writer, newer-writer and ttl-drift."),
]
PreviousPythonOption = Annotated[
    str | None,
    typer.Option(
        help="A Python with the previous release installed; it runs --previous, or else the same target."
    ),
]
RetainOption = Annotated[str | None, typer.Option(help="How long memory must live, such as 7d.")]
FullOption = Annotated[bool, typer.Option("--full", help="Every policy, fault and variant.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        help="Time limit for everything; what does not fit is skipped. 60s by default; with --full, none."
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Repeats a schedule. On real engines, the interleaving may differ.")
]
WorkersOption = Annotated[int, typer.Option(help="Cells to run at the same time.", min=1)]
RepeatOption = Annotated[
    int | None,
    typer.Option(help="Run every cell so many times, each with the next seed; says how often.", min=1),
]
ForOption = Annotated[
    str | None, typer.Option("--for", help="The same, until the time is up: 10m, 8h. Instead of --budget.")
]
SessionsOption = Annotated[
    int | None, typer.Option(help="Sessions in each cell; 3 by default.", min=1, max=1_000_000)
]
MessagesOption = Annotated[
    int | None,
    typer.Option(
        "--messages-per-session", help="Messages that each has when the fault strikes.", min=1, max=1_000_000
    ),
]
WritersOption = Annotated[int | None, typer.Option(help="Writing processes in each cell.", min=1)]
ProgramOption = Annotated[
    list[str] | None,
    typer.Option(help="Orders of events: what the clients do, such as 'a a | f a'; repeatable."),
]
ShardOption = Annotated[
    str, typer.Option(help="I/N: run the I-th of N parts; `recollect report` merges them.")
]
FailFastOption = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first violation.")]
ConfirmOption = Annotated[
    bool, typer.Option("--confirm/--no-confirm", help="Run each violation again, and make it smaller.")
]
ListOption = Annotated[
    bool, typer.Option("--list", help="List the released stores that have a name, and which are installed.")
]
FaultsListedOption = Annotated[
    bool,
    typer.Option("--list-faults", help="List the faults, what each verifies, and its variants."),
]
OutOption = Annotated[Path | None, typer.Option(help="Folder for histories and results; runs/… by default.")]


def verify(
    context: typer.Context,
    targets: TargetsArgument = None,
    engine: EngineOption = None,
    engine_config: EngineConfigOption = None,
    policy: PolicyOption = None,
    fault: FaultOption = None,
    workload: WorkloadOption = None,
    variant: VariantOption = None,
    provider: ProviderOption = None,
    previous: PreviousOption = None,
    previous_python: PreviousPythonOption = None,
    retain: RetainOption = None,
    require: RequireOption = None,
    strict: StrictOption = False,
    verbose: VerboseOption = False,
    full: FullOption = False,
    budget: BudgetOption = None,
    seed: SeedOption = None,
    workers: WorkersOption = 2,
    writers: WritersOption = None,
    sessions: SessionsOption = None,
    messages_per_session: MessagesOption = None,
    repeat: RepeatOption = None,
    for_time: ForOption = None,
    program: ProgramOption = None,
    shard: ShardOption = "1/1",
    fail_fast: FailFastOption = False,
    confirm: ConfirmOption = True,
    baseline: BaselineOption = None,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
    junit_file: JunitOption = None,
    out: OutOption = None,
    data: older_data.DataOption = None,
    expect: older_data.ExpectOption = None,
    listed: ListOption = False,
    faults_listed: FaultsListedOption = False,
) -> None:
    """Put memory stores on real engines, break them with real faults, and show with evidence what was lost.

    recollect verify                                     the built-in stores, the core tier, in a minute

    recollect verify myapp.memory:make_store --engine redis

    recollect verify redis --policy rdb --fault kill-engine

    Exit codes: 0 held, documented loss, exposed; 1 violated; 2 usage, or cannot be opened; 3 unknown; 4 our error.
    """
    limits = run_limits(budget, repeat, for_time, full=full)
    console = PlainConsole(stderr=json_file == "-")
    wanted = reports_wanted(json_file, html_file, junit_file, verbose, require, strict, baseline, fault or ())
    request = VerifyRequest(
        targets=older_data.targets_for(context, _names(listed, faults_listed, targets, json_file)) or USUAL,
        overview=not targets,
        **_engine_asked_for(engine, engine_config, provider, targets),
        **_lists(policies=policy, faults=fault, workloads=workload, variants=variant, programs=program),
        previous=previous,
        previous_python=previous_python,
        retain_s=None if retain is None else seconds("--retain", retain),
        path=_here(targets),
        full=full,
        seed=int(time.time()) if seed is None else seed,
        shard=_shard(shard),
        writers=writers,
        sessions=sessions,
        session_messages=messages_per_session,
    )
    cells = older_data.cells_for(request, data, expect)
    tell(console, run(request, console, out, limits, workers, fail_fast, confirm, cells=cells), wanted)


@dataclass(frozen=True)
class RunLimits:
    """How long the first round may take, how many rounds there are, and how long all of them may take."""

    first_s: float | None
    rounds: int | None = 1
    all_s: float | None = None


def run_limits(budget: str | None, repeat: int | None, for_time: str | None, *, full: bool) -> RunLimits:
    if for_time is not None and (budget is not None or repeat is not None):
        other = "--budget" if budget is not None else "--repeat"
        raise typer.BadParameter(
            f"--for {for_time} and {other} exclude each other: --for is the time for everything"
        )
    if for_time is not None:
        all_s = seconds("--for", for_time)
        return RunLimits(min(all_s, max(BUDGET_S, FIRST_ROUND_SHARE * all_s)), None, all_s)
    if budget is not None:
        budget_s = seconds("--budget", budget)
        return RunLimits(budget_s, repeat or 1, budget_s)
    return RunLimits(None if full else BUDGET_S, repeat or 1)


def _names(
    stores_listed: bool, faults_listed: bool, targets: list[str] | None, json_file: str | None
) -> tuple[str, ...]:
    if faults_listed:
        show_faults()
    return names_first(stores_listed, targets, json_file)


def _lists(**given: list[str] | None) -> dict[str, Any]:
    """Repeatable options, as a request has them."""
    return {name: tuple(values or ()) for name, values in given.items()}


def _engine_asked_for(
    engine: list[str] | None, engine_config: Path | None, provider: str | None, targets: list[str] | None
) -> dict[str, Any]:
    """What a request says about its engine."""
    address = _address(provider, next(iter(engine or ()), None) or (targets or [""])[0])
    return {
        "engine": engine[0] if engine and len(engine) == 1 else None,
        "engines": tuple(engine or ()),
        "provider": None if address is not None else provider,
        "url": address,
        "engine_config": None if engine_config is None else str(engine_config.absolute()),
    }


def _here(targets: list[str] | None) -> tuple[str, ...]:
    """Where the user's own targets are found, even when a run is replayed from another folder."""
    return (str(Path.cwd()),) if any(":" in target for target in targets or ()) else ()


def _address(provider: str | None, engine: str) -> SecretUrl | None:
    """The engine that the user runs, if `--provider` is an address or says where to find it."""
    if provider == addresses.NAME:
        name = engine.partition("@")[0]
        name = KINDS.get(name, name)
        if (found := addresses.from_environment(name)) is None:
            known = addresses.variable_of(name) or " or ".join(addresses.VARIABLES.values())
            raise typer.BadParameter(f"--provider url: set {known} to the address of the engine")
        return found
    if provider is None or "://" not in provider:
        return None
    try:
        addresses.engine_of(provider)
    except engines.EngineError as error:
        raise typer.BadParameter(f"--provider: {error}") from None
    return SecretUrl(provider)


def run(
    request: VerifyRequest,
    console: PlainConsole,
    out: Path | None,
    limits: RunLimits,
    workers: int,
    fail_fast: bool,
    confirm: bool = True,
    cells: list[Cell] | None = None,
) -> Results:
    """Lays out the cells unless they are given, runs them with progress, and saves the results. Given cells are not
    made smaller."""
    date, started = date_of(time.time()), time.monotonic()
    budget_s = limits.first_s
    confirm = confirm and cells is None
    broken: list[Result] = []
    processes: list[CellProcess[Any]] = []
    if cells is None:
        cells, broken, processes = _lay_out(request)
    failed = failed_last(out.parent if out is not None else RUNS)
    # What failed last time comes first in its phase.
    cells.sort(key=lambda cell: cell.scenario.name not in failed)
    orders = [cell for cell in cells if cell.scenario.workload == INTERLEAVINGS]
    orders_s = orders_first.seconds_each(len(orders), budget_s)
    if not orders_s:
        cells = [cell for cell in cells if cell not in orders]
    runnable = sum(cell.skipped is None for cell in cells)
    with folder_of_run(out, f"seed{request.seed}") as folder:
        console.print(f"seed {request.seed}", highlight=False)
        with interrupts.terminated_like_interrupted(), LiveProgress(console, runnable, budget_s) as progress:
            matrix = Matrix(
                cells,
                folder,
                workers=workers,
                budget_s=budget_s,
                fail_fast=fail_fast,
                confirm=confirm,
                listener=progress,
                explore_orders=orders_first.exploring(
                    orders_s, request.programs, orders_first.grace_each(len(orders), budget_s)
                ),
                processes=processes,
            )
            results = matrix.run()
        if limits.rounds != 1 and not (fail_fast and exit_code(results) == exit_codes.VIOLATED):
            results = _further_rounds(results, folder, console, limits, workers, started)
        results = Results(
            seed=request.seed,
            date=date,
            elapsed_s=time.monotonic() - started,
            repeated=results.repeated,
            folder=str(folder),
            shard="{}/{}".format(*request.shard) if request.shard != (1, 1) else "",
            results=(*results.results, *broken),
        )
        try:
            results.save(folder)
        except OSError as error:  # a full disk hides no verdict
            echo(
                f"cannot write {error.filename}: {error.strerror}; the verdicts are told, but not saved",
                err=True,
            )
    return results


def _further_rounds(
    first: Results, folder: Path, console: PlainConsole, limits: RunLimits, workers: int, started: float
) -> Results:
    """The cells again, with further seeds, until there were enough rounds or the time is up."""
    until_s = None if limits.all_s is None else started + limits.all_s
    with interrupts.terminated_like_interrupted(), ExitStack() as stack:

        def watch(cells: int) -> LiveProgress:
            stack.close()
            return stack.enter_context(LiveProgress(console, cells))

        return repeating.repeat(
            first, folder, rounds=limits.rounds, until_s=until_s, workers=workers, watch=watch
        )


def _lay_out(request: VerifyRequest) -> tuple[list[Cell], list[Result], list[CellProcess[Any]]]:
    """The cells of every target that opens, a result for each cell of those that do not, and the processes that opened
    them."""
    try:
        parts = by_engine(request)
    except BadRequest as bad:
        echo(str(bad), err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    with closing(CellPool(1)) as pool:
        laid_out = [_lay_out_on_one(part, pool) for part in parts]
        every_cell = [cell for cells, _ in laid_out for cell in cells]
        return every_cell, [one for _, broken in laid_out for one in broken], pool.hand_over()


def _lay_out_on_one(request: VerifyRequest, pool: CellPool) -> tuple[list[Cell], list[Result]]:
    """The cells on one version of one engine, and the results of those that cannot run there."""
    try:
        check(request)
        orders_first.check_programs(request, {})
        seen = _look(request, pool)
        usable = {name: frozenset(found.abilities) for name, found in seen.items() if found.refusal is None}
        cells = select(replace(request, targets=tuple(usable)), usable) if usable else []
        orders_first.check_programs(request, usable)
        cells = [*orders_first.cells_for(request, cells), *cells]
        broken = [
            Result(
                scenario=cell.scenario,
                verdict=_unusable(found, cell.skipped),
                trouble=_trouble(found),
            )
            for name, found in seen.items()
            if found.refusal is not None
            for cell in select(replace(request, targets=(name,)), {})
        ]
    except BadRequest as bad:
        echo(str(bad), err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    if not usable and not any(found.no_engine for found in seen.values()):
        for refusal in dict.fromkeys(found.refusal or "" for found in seen.values()):
            echo(refusal, err=True)
        ours = any(found.internal for found in seen.values())
        raise typer.Exit(exit_codes.INTERNAL if ours else exit_codes.USAGE)
    return cells, broken


def _look(request: VerifyRequest, pool: CellPool) -> dict[str, TargetSeen]:
    """What each target can do. What is not ours is opened in another process: a target, an address, `--previous`."""
    ours = BUILT_IN if request.url is None and request.previous is None else ()
    return {
        target: TargetSeen(tuple(OUR_ABILITIES[target])) if target in ours else pool.look(request, target)
        for target in request.targets
    }


def _trouble(found: TargetSeen) -> Trouble | None:
    return None if found.no_engine else "internal" if found.internal else "unopened"


def _unusable(found: TargetSeen, obstacle: str | None) -> Verdict:
    if obstacle is not None:
        return Verdict(status="skipped", reason=obstacle)
    return Verdict(status="skipped" if found.no_engine else "unknown", reason=found.refusal)
