"""What `recollect explore` prints, and the same as a document."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from recollect.verify import providers
from recollect.verify.disk import materialise
from recollect.verify.disk.explanation import Explanation, explain
from recollect.verify.disk.model import Mode
from recollect.verify.disk.recovery import never_read
from recollect.verify.disk.states import State
from recollect.verify.engines import EngineError
from recollect.verify.explore.crash_state_reader import Reading
from recollect.verify.explore.exploration import TargetRun
from recollect.verify.explore.resuming import REFUSED, Explored
from recollect.verify.explore.second_crash import RecordedRecovery, Recoveries

_OPEN = {
    "sqlite": "sqlite3 {image}/memory.db",
    "redis": "{server} --dir {image} --appendonly yes",
    "postgres": "{server} -D {image}",
    "chroma": "chroma run --path {image}",
}
_ITS_WORDS = "the engine's own words above say how"
_REPAIR = {
    "redis": "on a copy, `{check} --fix appendonlydir/appendonly.aof.manifest` cuts the file at the damage "
    "and keeps what is before it",
}


def crash_image(mode: str, depth: int) -> str:
    """The folder in the run's folder that has the first bad disk."""
    return f"crash-image-{mode}" if depth == 1 else f"crash-image-{mode}-{depth}"


def show(
    console: Console, run: TargetRun, found: Explored, recoveries: Recoveries | None, folder: Path
) -> dict[str, Any]:
    about, plan, tally = run.about, found.plan, found.tally
    parts = [
        f"{count} {what}"
        for count, what in (
            (tally.violated, "violated"),
            (tally.held, "held"),
            (tally.documented, "lost what the engine's documentation allows"),
            (tally.refused, "refused by the engine"),
            (tally.unsure, "unknown"),
        )
        if count or what in ("violated", "held")
    ]
    _print(
        console,
        f"{about.target} on {about.engine} {about.policy}, {plan.mode}, level {plan.level}: "
        f"{tally.judged} of {tally.states} {'crash states' if recoveries is None else 'second crash states'} judged: "
        f"{', '.join(parts)}"
        f" ({found.judged_now} now, in {found.elapsed_s:.1f} s)",
    )
    if recoveries is not None:
        _print(
            console,
            f"They are crashes during the recoveries from {recoveries.recorded} of {recoveries.firsts} first crash"
            f" states that held with something acknowledged; {recoveries.quiet} of these recoveries wrote nothing.",
        )
    if not found.is_whole or (recoveries is not None and recoveries.is_cut):
        _show_rest(console, run, found, recoveries, folder)
    for why in found.disagreements:
        _print(console, f"unknown: {why}")
    document: dict[str, Any] = {
        **{name: getattr(about, name) for name in ("target", "engine", "engine_version", "policy")},
        "mode": plan.mode,
        "level": plan.level,
        "depth": 1 if recoveries is None else 2,
        **asdict(tally),
        "tried": tally.judged,
        "searched": found.searched,
        "records": found.records,
        "anomalies": found.anomalies,
        "disagreements": list(found.disagreements),
        "elapsed_s": round(found.elapsed_s, 3),
        "first_bad": None,
    }
    if found.worst is not None:
        document["first_bad"] = _show_state(console, run, found, recoveries, folder)
    return document


def _show_rest(
    console: Console, run: TargetRun, found: Explored, recoveries: Recoveries | None, folder: Path
) -> None:
    searched = ""
    if recoveries is None and found.searched != found.records:
        searched = f" States were looked for at the first {found.searched} of {found.records} recorded calls."
    if recoveries is not None and recoveries.is_cut:
        searched = " Not all first crash states were looked for."
    depth = "" if recoveries is None else " --depth 2"
    _print(
        console,
        f"The budget ended.{searched} Go on with: recollect explore {run.about.target} --resume {folder}"
        f" --level {found.plan.level} --mode {found.plan.mode}{depth}",
    )


def _server(engine: str) -> str:
    """The server that was run, with its path: the first of that name on PATH may be another one."""
    try:
        return shlex.quote(providers.find(engine).location)
    except EngineError:
        return "redis-server" if engine.startswith(("redis", "valkey")) else "postgres"


def _repair(name: str, engine: str) -> str:
    """The repair command, with the program from the folder of the server that was run, if it is there."""
    beside = Path(shlex.split(_server(engine))[0]).with_name("redis-check-aof")
    check = shlex.quote(str(beside)) if beside.exists() else beside.name
    return _REPAIR.get(name, _ITS_WORDS).format(check=check)


def _show_state(
    console: Console, run: TargetRun, found: Explored, recoveries: Recoveries | None, folder: Path
) -> dict[str, Any]:
    assert found.worst is not None
    state, judgement = found.worst
    about, mode = run.about, found.plan.mode
    image = folder / crash_image(mode, 1 if recoveries is None else 2)
    if not image.exists():
        materialise(state.image, image)
    told = _explained(run, state, mode, None if recoveries is None else recoveries.worst)
    name = about.engine.partition("@")[0].replace("valkey", "redis")
    command = _OPEN[name].format(image=image, server=_server(about.engine))
    depth = "" if recoveries is None else " --depth 2"
    look = f"recollect explore {about.target} --resume {folder} --look {mode}{depth}"
    _print(console, f"\nThe first bad state, {judgement.anomaly}: {judgement.detail}")
    if judgement.anomaly == REFUSED:
        _print(
            console,
            "The engine refuses its own files: nothing that the store did can prevent it, and nothing is lost in "
            f"silence. To recover: {_repair(name, about.engine)}.",
        )
    elif judgement.documented:
        _print(console, "The engine's documentation allows this loss under this policy.")
    _print(console, str(told))
    _print(console, f"The disk as it was left: {image} (opening it changes it: work on a copy)")
    _print(console, f"  {command}\n  {look}\n")
    return {
        **asdict(judgement),
        **asdict(told),
        "state": str(state),
        "image": str(image),
        "open": command,
        "look": look,
    }


def _explained(run: TargetRun, state: State, mode: Mode, under_way: RecordedRecovery | None) -> Explanation:
    """The story of the crash; of the second one if a recovery was under way."""
    exclude = never_read(run.about.engine)
    if under_way is None:
        return explain(run.base, run.records, state, mode, exclude=exclude)
    records, state = under_way.told(state)
    return explain(under_way.base, records, state, mode, exclude=exclude)


def show_look(console: Console, read: Reading) -> None:
    for session, elements in read.items():
        if isinstance(elements, str):
            _print(console, f"{session}: {elements}")
            continue
        odd = iter(elements.odd)
        told = [str(number) if number >= 0 else repr(next(odd).excerpt) for number in elements.numbers]
        _print(console, f"{session}: {'messages ' + ', '.join(told) if told else 'empty'}")


def show_refusal(console: Console, refusal: EngineError) -> None:
    _print(console, f"the engine refuses its files: {refusal}")


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
