"""`recollect explore`: every crash state of one recorded run, recovered by the real engine and judged."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recollect import __version__
from recollect.commands.verify import seconds
from recollect.verify import engines, exploration
from recollect.verify.clients import TargetBroken
from recollect.verify.disk import LEVELS, MODES, Mode, materialise
from recollect.verify.disk.building import ShimUnavailableError
from recollect.verify.disk.explanation import explain
from recollect.verify.disk.exploring import (
    Exploration,
    Finding,
    Plan,
    WorkerFailed,
    load_findings,
    save_findings,
)
from recollect.verify.disk.exploring import explore as explore_states
from recollect.verify.disk.recovery import home, never_read
from recollect.verify.disk.states import State
from recollect.verify.exploration import NothingRecorded, TargetCheck, TargetRun
from recollect.verify.host.errors import EngineError
from recollect.verify.selection import BadRequest, Request, check, engine_of

_REFUSED = "refuses-to-start"
_OPEN = {
    "sqlite": "sqlite3 {image}/memory.db",
    "redis": "redis-server --dir {image} --appendonly yes",
    "postgres": "postgres -D {image}",
    "chroma": "chroma run --path {image}",
}


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
    budget: Annotated[str, typer.Option(help="Time for each mode; the rest can be done later.")] = "60s",
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder, instead of a new one.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write one JSON document; - is standard output.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the recording; runs/… by default.")] = None,
) -> None:
    """Record one run of a store, and try every state that a power loss could have left the disk in.

    Exit codes: 0 held or documented loss, 1 violated, 2 usage, 3 nothing could be concluded.
    """
    console = Console(stderr=json_file == "-")
    modes = _modes(mode)
    if level not in LEVELS:
        raise typer.BadParameter(f"--level {level}: 1, 2 or 3")
    folder = resume or out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-explore"
    try:
        run = exploration.load(folder) if resume else _record(target, engine, policy, messages, folder)
        found = [
            _explored(
                run,
                folder,
                Plan(one, level, workers, seconds(budget), run.about.start, never_read(run.about.engine)),
                console,
            )
            for one in modes
        ]
    except BadRequest as bad:
        typer.echo(str(bad), err=True)
        raise typer.Exit(2) from None
    except (NothingRecorded, ShimUnavailableError, EngineError, TargetBroken, WorkerFailed) as reason:
        typer.echo(f"unknown: {reason}", err=True)
        raise typer.Exit(3) from None
    documents = [_show(console, run, one, folder) for one in found]
    if json_file is not None:
        text = json.dumps({"recollect": __version__, "explorations": documents}, indent=2)
        typer.echo(text) if json_file == "-" else Path(json_file).write_text(text + "\n")
    raise typer.Exit(_exit_code(found))


def _modes(asked: list[str] | None) -> list[Mode]:
    unknown = set(asked or ()) - set(MODES)
    if unknown:
        raise typer.BadParameter(f"--mode {', '.join(sorted(unknown))}: {' or '.join(MODES)}")
    return [mode for mode in MODES if not asked or mode in asked]


def _record(target: str, engine: str | None, policy: str | None, messages: int, folder: Path) -> TargetRun:
    request = Request(targets=(target,), engine=engine, policies=(policy,) if policy else ())
    check(request)
    spec = engine_of(request, target)
    chosen = policy or engines.ENGINES[spec.partition("@")[0]].default_policy
    folder.mkdir(parents=True, exist_ok=True)
    return exploration.record(target, spec, chosen, messages=messages, folder=folder)


def _explored(run: TargetRun, folder: Path, plan: Plan, console: Console) -> Exploration:
    place = home()
    kept = folder / f"findings-{plan.mode}.jsonl"
    known = load_findings(kept)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{plan.mode}, level {plan.level}", total=None)
        try:
            return explore_states(
                run.base,
                run.records,
                lambda: TargetCheck(run, folder / "target.log", place),
                plan,
                known=known,
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        finally:
            save_findings(kept, known)


def _exit_code(found: list[Exploration]) -> int:
    if any(
        finding.anomaly != _REFUSED and not finding.documented for one in found for _, finding in one.bad()
    ):
        return 1
    return 0 if any(one.findings for one in found) else 3


# ---- what is shown ----


def _show(console: Console, run: TargetRun, found: Exploration, folder: Path) -> dict[str, Any]:
    about, plan = run.about, found.plan
    documented = sum(finding.documented for finding in found.findings.values())
    refused = found.counts[_REFUSED]
    held = found.counts["held"]
    violated = (
        len(found.findings)
        - held
        - refused
        - sum(finding.documented and finding.anomaly != _REFUSED for finding in found.findings.values())
    )
    console.print(
        f"{about.target} on {about.engine} {about.policy}, {plan.mode}, level {plan.level}: "
        f"{len(found.states)} crash states, {held} held, {documented} documented losses, "
        f"{refused} refused by the engine, {violated} violated"
        + (f", {found.left} left for --resume {folder}" if found.left else "")
        + f" ({len(found.findings) / max(found.elapsed_s, 1e-9):.0f} a second)",
        highlight=False,
    )
    document: dict[str, Any] = {
        **{name: getattr(about, name) for name in ("target", "engine", "engine_version", "policy")},
        "mode": plan.mode,
        "level": plan.level,
        "states": len(found.states),
        "tried": len(found.findings),
        "held": held,
        "documented": documented,
        "refused": refused,
        "violated": violated,
        "anomalies": {name: count for name, count in found.counts.items() if name != "held"},
        "elapsed_s": round(found.elapsed_s, 3),
        "first_bad": None,
    }
    worst = _worst(found)
    if worst is not None:
        document["first_bad"] = _show_state(console, run, plan.mode, *worst, folder)
    return document


def _worst(found: Exploration) -> tuple[State, Finding] | None:
    """The first violation; without one the first refusal, then the first documented loss."""
    ranked = sorted(found.bad(), key=lambda bad: (bad[1].documented, bad[1].anomaly == _REFUSED))
    return ranked[0] if ranked else None


def _show_state(
    console: Console, run: TargetRun, mode: Mode, state: State, finding: Finding, folder: Path
) -> dict[str, Any]:
    image = folder / f"crash-image-{mode}"
    if not image.exists():
        materialise(state.image, image)
    told = explain(run.base, run.records, state, mode)
    command = _OPEN[run.about.engine.partition("@")[0].replace("valkey", "redis")].format(image=image)
    console.print(f"\n{finding.anomaly}: {finding.detail}", highlight=False, markup=False)
    if finding.anomaly == _REFUSED:
        console.print(
            "The engine refuses its own files; nothing that the store did can prevent or undo it.",
            highlight=False,
        )
    console.print(f"{told}\nthe disk as it was left: {image}\n  {command}\n", highlight=False, markup=False)
    return {**asdict(finding), **asdict(told), "state": str(state), "image": str(image), "open": command}
