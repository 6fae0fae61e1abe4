"""`recollect explore`: every crash state of one recorded run, recovered by the real engine and judged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recollect import __version__, exit_codes
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.explore_page import page
from recollect.commands.explore_showing import crash_image, show, show_look, show_refusal
from recollect.commands.interleavings import OrdersAsked, explore_orders
from recollect.commands.json_output import JsonOption
from recollect.commands.verify import seconds as duration
from recollect.commands.writing import HtmlOption, folder_of_run, write_page
from recollect.verify import engines
from recollect.verify.disk import LEVELS, MODES, Mode, scan
from recollect.verify.disk.building import ShimUnavailableError
from recollect.verify.disk.exploring import ExplorePlan, WorkerFailed
from recollect.verify.disk.records import DamagedRecording, LogFullError
from recollect.verify.disk.recovery import home, never_read
from recollect.verify.explore import exploration
from recollect.verify.explore.exploration import NothingRecorded, TargetCheck, TargetRun
from recollect.verify.explore.resuming import Explored, explore_run
from recollect.verify.explore.second_crash import Recoveries, explore_recoveries
from recollect.verify.host import interrupts
from recollect.verify.host.errors import EngineError
from recollect.verify.matrix.selection import BadRequest, VerifyRequest, check, engine_of
from recollect.verify.target.workers import TargetBroken

_Modes = Annotated[list[str] | None, typer.Option(help="ext4, strict; repeatable. Both by default.")]
_Messages = Annotated[int, typer.Option(help="How many messages the recorded run writes.", min=1)]
_Budget = Annotated[
    str,
    typer.Option(help="Time limit for finding and judging, for each mode and depth; --resume does the rest."),
]
_Depth = Annotated[
    int,
    typer.Option(help="2: also every crash while the engine recovers from the first one.", min=1, max=2),
]
_Resume = Annotated[
    Path | None, typer.Option(help="Continue the run in this folder instead of starting a new one.")
]
_Look = Annotated[
    str | None,
    typer.Option(help="With --resume: what the store reads on the crash image of this mode, ext4 or strict."),
]
_Interleavings = Annotated[
    bool, typer.Option("--interleavings", help="Try every order of a few concurrent operations instead.")
]
_How = Annotated[
    list[str] | None,
    typer.Option(
        help="Interleavings of tasks, threads or processes; repeatable. By default, what fits the store."
    ),
]
_Program = Annotated[
    list[str] | None,
    typer.Option(help="What the clients do, such as 'a r | a'; repeatable. See docs/interleavings.md."),
]
_Cancel = Annotated[
    bool, typer.Option("--cancel", help="Interleavings: also cancel one operation, wherever it waits.")
]
BOUND = 2
SECONDS = 30.0
_Bound = Annotated[
    int | None,
    typer.Option(
        help="Interleavings: most preemptions, if not every order can be tried; 2 by default.", min=0, max=9
    ),
]
_Seconds = Annotated[
    float | None,
    typer.Option(help="Interleavings: time limit for all programs together; 30 by default.", min=0.1),
]
_ReplayOption = Annotated[
    str | None,
    typer.Option("--replay", metavar="SCHEDULE", help="Interleavings: one schedule of the --program."),
]
_Until = Annotated[
    str | None, typer.Option(metavar="NAME", help="Interleavings: go on until this anomaly is found.")
]


def explore(
    target: Annotated[str, typer.Argument(help="sqlite, redis, postgres, or package.module:factory.")],
    engine: Annotated[str | None, typer.Option(help="Engine of your own target, such as redis@7.")] = None,
    policy: Annotated[str | None, typer.Option(help="Durability policy.")] = None,
    level: Annotated[
        int, typer.Option(help="1: each crash point. 2: also single pages and names. 3: also single writes.")
    ] = 2,
    depth: _Depth = 1,
    mode: _Modes = None,
    messages: _Messages = 50,
    workers: Annotated[int, typer.Option(help="Processes at the same time.", min=1)] = 2,
    budget: _Budget = "60s",
    resume: _Resume = None,
    look: _Look = None,
    interleavings: _Interleavings = False,
    how: _How = None,
    program: _Program = None,
    cancel: _Cancel = False,
    bound: _Bound = None,
    seconds: _Seconds = None,
    replay: _ReplayOption = None,
    until: _Until = None,
    json_file: JsonOption = None,
    html: HtmlOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the recording; runs/… by default.")] = None,
) -> None:
    """Record one run of a store, and try every state that a power loss could have left the disk in. With
    --depth 2: also every state that a crash during the recovery could have left. With --interleavings: try every order
    of a few concurrent operations.

    Exit codes: 0 held or documented loss, 1 violated, 2 usage, 3 nothing could be concluded.
    """
    if interleavings:
        asked_orders = OrdersAsked(
            target,
            engine,
            policy,
            how or (),
            program or (),
            cancel,
            BOUND if bound is None else bound,
            SECONDS if seconds is None else seconds,
            replay,
            until,
            json_file,
            html,
            out,
        )
        explore_orders(asked_orders)
    of_orders = {"how": how, "program": program, "cancel": cancel or None, "bound": bound, "seconds": seconds}
    _refuse_without_interleavings({**of_orders, "replay": replay, "until": until})
    if level not in LEVELS:
        raise typer.BadParameter(f"--level {level}: 1, 2 or 3")
    states = StatesAsked(
        target,
        engine,
        policy,
        messages,
        level,
        depth,
        _modes(mode),
        workers,
        duration("--budget", budget),
        resume,
        look,
        out,
    )
    _explore_states(states, json_file, html)


def _refuse_without_interleavings(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"--{name} belongs to --interleavings")


@dataclass(frozen=True)
class StatesAsked:
    """What the command line says about crash states."""

    target: str
    engine: str | None
    policy: str | None
    messages: int
    level: int
    depth: int
    modes: list[Mode]
    workers: int
    budget_s: float
    resume: Path | None
    look: str | None
    out: Path | None


def _explore_states(asked: StatesAsked, json_file: str | None, html: Path | None) -> None:
    console = PlainConsole(stderr=json_file == "-")
    folder: Path | None = None
    try:
        with interrupts.terminated_like_interrupted(), ExitStack() as held:
            folder, run = (
                _resumed(asked.target, asked.resume, held) if asked.resume else _recorded(asked, held)
            )
            if asked.look is not None:
                _look(console, run, folder, crash_image(asked.look, asked.depth))
                return
            found = [one for mode in asked.modes for one in _explored(asked, run, folder, mode, console)]
    except (BadRequest, DamagedRecording, LogFullError) as bad:
        echo(str(bad), err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    except (NothingRecorded, ShimUnavailableError, EngineError, TargetBroken, WorkerFailed) as reason:
        echo(f"unknown: {reason}", err=True)
        raise typer.Exit(exit_codes.INCONCLUSIVE) from None
    except KeyboardInterrupt:
        if folder is not None:
            again = f"recollect explore {asked.target} --resume {folder}"
            echo(f"interrupted; continue with: {again}", err=True)
        raise typer.Exit(exit_codes.INCONCLUSIVE) from None
    documents = [show(console, run, *one, folder) for one in found]
    if json_file is not None:
        text = json.dumps({"recollect": __version__, "explorations": documents}, indent=2)
        json_output.write(text, json_file)
    if html is not None:
        write_page(page(documents), html)
    tell_written(console, json_file, html)
    raise typer.Exit(_exit_code([one for one, _ in found]))


def _plan(asked: StatesAsked, mode: Mode, run: TargetRun) -> ExplorePlan:
    about = run.about
    return ExplorePlan(
        mode, asked.level, asked.workers, asked.budget_s, about.start, never_read(about.engine)
    )


def _modes(asked: list[str] | None) -> list[Mode]:
    unknown = set(asked or ()) - set(MODES)
    if unknown:
        raise typer.BadParameter(f"--mode {', '.join(sorted(unknown))}: {' or '.join(MODES)}")
    return [mode for mode in MODES if not asked or mode in asked]


def _recorded(asked: StatesAsked, held: ExitStack) -> tuple[Path, TargetRun]:
    policies = (asked.policy,) if asked.policy else ()
    request = VerifyRequest(targets=(asked.target,), engine=asked.engine, policies=policies)
    check(request)
    spec = engine_of(request, asked.target)
    chosen = asked.policy or engines.ENGINES[spec.partition("@")[0]].default_policy
    folder = held.enter_context(folder_of_run(asked.out, "explore"))
    if exploration.is_recorded(folder):
        raise BadRequest(f"{folder} has a recording: --resume it, or choose another folder with --out")
    return folder, exploration.record(asked.target, spec, chosen, messages=asked.messages, folder=folder)


def _resumed(target: str, folder: Path, held: ExitStack) -> tuple[Path, TargetRun]:
    if not exploration.is_recorded(folder):
        raise BadRequest(f"{folder} has no recording to continue; leave --resume out to make one")
    run = exploration.load(folder)
    if run.about.target != target:
        raise BadRequest(f"{folder} is a recording of {run.about.target}, not of {target}")
    return held.enter_context(folder_of_run(folder, "explore")), run


def _look(console: PlainConsole, run: TargetRun, folder: Path, name: str) -> None:
    image = folder / name
    if not image.is_dir():
        raise BadRequest(f"there is no {name!r} in {folder}: every state held, or none was judged yet")
    checking = TargetCheck(run, None, home())
    try:
        show_look(console, checking.look(scan(image).image))
    except EngineError as refusal:
        show_refusal(console, refusal)
    finally:
        checking.close()


def _explored(
    asked: StatesAsked, run: TargetRun, folder: Path, mode: Mode, console: PlainConsole
) -> Iterator[tuple[Explored, Recoveries | None]]:
    """The crash states of the run, and with `--depth 2` those of the recoveries from them."""
    scratch, plan = home(), _plan(asked, mode, run)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{plan.mode}, level {plan.level}: finding states", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, description=f"{plan.mode}, level {plan.level}", completed=done, total=total)

        def check() -> TargetCheck:
            return TargetCheck(run, folder / "target.log", scratch)

        yield explore_run(run, folder, plan, check, progress), None
        if asked.depth > 1:
            bar.update(task, description=f"{mode}: recording recoveries", completed=0, total=None)
            yield explore_recoveries(run, folder, plan, check, scratch, progress)


def _exit_code(found: list[Explored]) -> int:
    if any(one.tally.violated for one in found):
        return exit_codes.VIOLATED
    if any(one.tally.unsure for one in found):
        return exit_codes.INCONCLUSIVE
    return exit_codes.HELD if any(one.tally.judged for one in found) else exit_codes.INCONCLUSIVE
