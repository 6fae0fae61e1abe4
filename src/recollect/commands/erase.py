"""`recollect erase URL SESSION`: takes one session out of a store's files, and says what could not be reached."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Annotated

import msgspec
import typer

from recollect import __version__, exit_codes
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.existing import require_file
from recollect.commands.json_output import JsonOption
from recollect.erasure import Erasure
from recollect.errors import RecollectError, Unreadable
from recollect.opening import open_store
from recollect.secret import scrub
from recollect.store import SessionState


def erase(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            envvar="RECOLLECT_URL",
            show_envvar=True,
            help="The store, as given to open_store. In the environment a password is not seen by `ps`.",
        ),
    ],
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The id of the session.")],
    witness: Annotated[
        str | None, typer.Option(metavar="FILE", help="The store's witness, which may name the session too.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json_file: JsonOption = None,
) -> None:
    """Erase one session for good: its messages, its turn ids and its id, from every file that can be reached.

    Files are rewritten: the larger they are, the longer it takes, and writers wait meanwhile. It cannot be undone.
    On Redis and PostgreSQL a digest of the id stays for a week: it tells other processes that the session was not lost.
    """
    if not yes and not _confirmed(session):
        echo("recollect erase: nothing was erased; --yes does not ask", err=True)
        raise typer.Exit(exit_codes.USAGE)
    try:
        report, was = asyncio.run(_erase(url, session, witness))
    except RecollectError as error:
        echo(f"recollect erase: {scrub(str(error), url)}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    if was is SessionState.ABSENT:
        echo(f"there was no session {session!r}: is that its id?", err=True)
    if json_file is not None:
        told = {"recollect": __version__, **msgspec.to_builtins(report)}
        json_output.write(json.dumps(told, indent=2), json_file)
    if json_file != json_output.PRINTED:
        _show(report, was)
        tell_written(PlainConsole(), json_file)


def _confirmed(session: str) -> bool:
    try:
        return typer.confirm(f"Erase session {session!r} for good?", err=True)
    except typer.Abort:  # nobody is there to answer
        return False


async def _erase(url: str, session: str, witness: str | None) -> tuple[Erasure, SessionState | None]:
    """What was reached, and what the session was before; None if that could not be read, which hinders nothing."""
    require_file(url)
    was = None
    async with open_store(url, witness=witness) as store:
        with suppress(Unreadable):
            was = await store.state(session)
        report = await store.forget(session, erase=True)
    assert report is not None
    return report, was


def _show(report: Erasure, was: SessionState | None) -> None:
    done = "nothing is left of" if was is SessionState.ABSENT else "erased"
    place = "in" if was is SessionState.ABSENT else "from"
    echo(f"{done} {report.session!r} {place} {', '.join(report.reached) or 'no file'}")
    typer.echo("its bytes may still be in:")
    for unreached in report.unreached:
        echo(f"  {unreached.where}: {unreached.why}")
