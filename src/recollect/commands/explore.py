"""`recollect explore`: every crash state of one recorded run, recovered by the real engine and judged."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recollect import __version__, exit_codes, private
from recollect.commands.console import PlainConsole
from recollect.commands.explore_showing import show, show_look, show_refusal
from recollect.commands.verify import seconds
from recollect.commands.writing import folder_of_run
from recollect.verify import engines
from recollect.verify.disk import LEVELS, MODES, Mode, scan
from recollect.verify.disk.building import ShimUnavailableError
from recollect.verify.disk.exploring import ExplorePlan, WorkerFailed
from recollect.verify.disk.records import DamagedRecording, LogFullError
from recollect.verify.disk.recovery import home, never_read
from recollect.verify.explore import exploration
from recollect.verify.explore.exploration import NothingRecorded, TargetCheck, TargetRun
from recollect.verify.explore.resuming import Explored, explore_run
from recollect.verify.host.errors import EngineError
from recollect.verify.matrix.selection import BadRequest, VerifyRequest, check, engine_of
from recollect.verify.target.workers import TargetBroken


def explore(
    target: Annotated[str, typer.Argument(help="sqlite, redis, postgres, or package.module:factory.")],
    engine: Annotated[str | None, typer.Option(help="Engine of your own target, such as redis@7.")] = None,
    policy: Annotated[str | None, typer.Option(help="Durability policy.")] = None,
    level: Annotated[
        int, typer.Option(help="1: each crash point. 2: and single pages and names. 3: and writes.")
    ] = 2,
    mode: Annotated[list[str] | None, typer.Option(help="ext4, strict; repeatable. Both by default.")] = None,
    messages: Annotated[int, typer.Option(help="How many the recorded run writes.", min=1)] = 50,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 2,
    budget: Annotated[
        str, typer.Option(help="Time for finding and judging, for each mode; the rest can be done later.")
    ] = "60s",
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, instead of a new one.")
    ] = None,
    look: Annotated[
        str | None,
        typer.Option(
            help="With --resume: what the store reads on the crash image of this mode, ext4 or strict."
        ),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write one JSON document; - is standard output.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the recording; runs/… by default.")] = None,
) -> None:
    """Record one run of a store, and try every state that a power loss could have left the disk in.

    Exit codes: 0 held or documented loss, 1 violated, 2 usage, 3 nothing could be concluded.
    """
    console = PlainConsole(stderr=json_file == "-")
    modes = _modes(mode)
    if level not in LEVELS:
        raise typer.BadParameter(f"--level {level}: 1, 2 or 3")
    folder: Path | None = None
    try:
        with ExitStack() as held:
            asked = Asked(target, engine, policy, messages)
            folder, run = _resumed(target, resume, held) if resume else _recorded(asked, out, held)
            if look is not None:
                _look(console, run, folder, look)
                return
            budget_s = seconds(budget)
            found = [
                _explored(
                    run,
                    folder,
                    ExplorePlan(one, level, workers, budget_s, run.about.start, never_read(run.about.engine)),
                    console,
                )
                for one in modes
            ]
    except (BadRequest, DamagedRecording, LogFullError) as bad:
        typer.echo(str(bad), err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    except (NothingRecorded, ShimUnavailableError, EngineError, TargetBroken, WorkerFailed) as reason:
        typer.echo(f"unknown: {reason}", err=True)
        raise typer.Exit(exit_codes.INCONCLUSIVE) from None
    except KeyboardInterrupt:
        if folder is not None:
            typer.echo(f"interrupted; go on with: recollect explore {target} --resume {folder}", err=True)
        raise typer.Exit(exit_codes.INCONCLUSIVE) from None
    documents = [show(console, run, one, folder) for one in found]
    if json_file is not None:
        text = json.dumps({"recollect": __version__, "explorations": documents}, indent=2)
        typer.echo(text) if json_file == "-" else private.write_artifact(Path(json_file), text + "\n")
    raise typer.Exit(_exit_code(found))


def _modes(asked: list[str] | None) -> list[Mode]:
    unknown = set(asked or ()) - set(MODES)
    if unknown:
        raise typer.BadParameter(f"--mode {', '.join(sorted(unknown))}: {' or '.join(MODES)}")
    return [mode for mode in MODES if not asked or mode in asked]


@dataclass(frozen=True)
class Asked:
    """The run to be recorded."""

    target: str
    engine: str | None
    policy: str | None
    messages: int


def _recorded(asked: Asked, out: Path | None, held: ExitStack) -> tuple[Path, TargetRun]:
    policies = (asked.policy,) if asked.policy else ()
    request = VerifyRequest(targets=(asked.target,), engine=asked.engine, policies=policies)
    check(request)
    spec = engine_of(request, asked.target)
    chosen = asked.policy or engines.ENGINES[spec.partition("@")[0]].default_policy
    folder = held.enter_context(folder_of_run(out, "explore"))
    if exploration.is_recorded(folder):
        raise BadRequest(f"{folder} has a recording: --resume it, or choose another folder with --out")
    return folder, exploration.record(asked.target, spec, chosen, messages=asked.messages, folder=folder)


def _resumed(target: str, folder: Path, held: ExitStack) -> tuple[Path, TargetRun]:
    if not exploration.is_recorded(folder):
        raise BadRequest(f"{folder} has no recording to go on with; leave --resume out to make one")
    run = exploration.load(folder)
    if run.about.target != target:
        raise BadRequest(f"{folder} is a recording of {run.about.target}, not of {target}")
    return held.enter_context(folder_of_run(folder, "explore")), run


def _look(console: PlainConsole, run: TargetRun, folder: Path, mode: str) -> None:
    image = folder / f"crash-image-{mode}"
    if not image.is_dir():
        raise BadRequest(f"no crash image of {mode!r} in {folder}: every state held, or none was judged yet")
    checking = TargetCheck(run, None, home())
    try:
        show_look(console, checking.look(scan(image).image))
    except EngineError as refusal:
        show_refusal(console, refusal)
    finally:
        checking.close()


def _explored(run: TargetRun, folder: Path, plan: ExplorePlan, console: PlainConsole) -> Explored:
    scratch = home()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{plan.mode}, level {plan.level}: finding states", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, description=f"{plan.mode}, level {plan.level}", completed=done, total=total)

        return explore_run(
            run, folder, plan, lambda: TargetCheck(run, folder / "target.log", scratch), progress
        )


def _exit_code(found: list[Explored]) -> int:
    if any(one.tally.violated for one in found):
        return exit_codes.VIOLATED
    if any(one.tally.unsure for one in found):
        return exit_codes.INCONCLUSIVE
    return exit_codes.HELD if any(one.tally.judged for one in found) else exit_codes.INCONCLUSIVE
