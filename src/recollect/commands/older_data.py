"""`recollect verify T --data FOLDER|DUMP --expect sessions.jsonl`: today's store on older data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from recollect import exit_codes
from recollect.commands.console import echo
from recollect.verify.judging.evidence import OLDER_DATA
from recollect.verify.matrix.selection import BadRequest, Cell, VerifyRequest, check, engine_of
from recollect.verify.running import older_data, older_sessions
from recollect.verify.running.older_data import BadData
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.registry import BUILT_IN

DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER|FILE",
        help="Older data, with --expect: a volume, an RDB file, a pg_dump or a SQLite file. A copy is read and "
        "appended to; the original is never touched.",
    ),
]
ExpectOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What --data has to hold: a session and its messages on each line of JSON. A list that does not match the "
        "data is exit code 2, a store that does not read it 1.",
    ),
]


_EXCLUDED = (
    "engine_config",
    "fault",
    "workload",
    "variant",
    "program",
    "previous",
    "previous_python",
    "retain",
    "full",
    "writers",
    "sessions",
    "messages_per_session",
    "repeat",
    "for_time",
)
"""Parameters of `verify` that have no meaning with `--data`."""
_ONE_OF = ("engine", "policy")
_OURS = (None, "system", "wheel")


def _refuse_others(context: typer.Context) -> None:
    """Refuses options that exclude `--data`, by name, and `--data` or `--expect` alone."""
    given = context.params
    data, expect = given["data"], given["expect"]
    if data is None and expect is None:
        return
    if data is None:
        _refuse(f"--expect {expect} needs the data that has to hold it: --data FOLDER|FILE")
    if expect is None:
        _refuse(f"--data {data} needs the list of what it has to hold: --expect FILE")
    others = [name for name in _EXCLUDED if given[name]]
    others += [name for name in _ONE_OF if len(given[name] or ()) > 1]
    others += [] if given["provider"] in _OURS else ["provider"]
    if others:
        option = {"for_time": "for"}.get(others[0], others[0]).replace("_", "-")
        _refuse(
            f"--data and --{option} exclude each other: older data is read and appended to, and nothing else happens"
        )


def cells_for(request: VerifyRequest, data: Path | None, expect: Path | None) -> list[Cell] | None:
    """One cell for each target, if there are older data; ends the command with what is wrong with any part of it."""
    if data is None or expect is None:
        return None
    try:
        found = older_data.recognise(data)
        older_sessions.load(expect)
        return [Cell(_scenario(request, target, found, expect)) for target in request.targets]
    except (BadData, BadRequest) as bad:
        _refuse(str(bad))
        raise


def _scenario(request: VerifyRequest, target: str, found: older_data.OlderData, expect: Path) -> Scenario:
    named = request.engine is not None or ":" not in target
    engine = found.engine_for(engine_of(request, target) if named else None)
    policy = found.policy_for(next(iter(request.policies), None))
    ours = VerifyRequest(targets=(target,), engine=engine, provider=request.provider, policies=(policy,))
    check(ours)
    return Scenario(
        target=target,
        engine=engine,
        policy=policy,
        fault=OLDER_DATA,
        workload=OLDER_DATA,
        provider=request.provider,
        path=request.path,
        seed=request.seed,
        writers=1,
        readers=0,
        ops_max=0,
        data=str(found.path),
        expect=str(expect.absolute()),
    )


def targets_for(context: typer.Context, targets: Sequence[str]) -> tuple[str, ...]:
    """The targets named, or the built-in store of the data's engine. Refuses what cannot be combined with it."""
    _refuse_others(context)
    data = context.params["data"]
    if targets or data is None:
        return tuple(targets)
    try:
        engine = older_data.recognise(Path(data)).format.engine
    except BadData as bad:
        _refuse(str(bad))
        raise
    return (engine,) if engine in BUILT_IN else ()


def _refuse(what: str) -> None:
    echo(what, err=True)
    raise typer.Exit(exit_codes.USAGE)
