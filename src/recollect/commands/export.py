"""`recollect export URL > memory.jsonl` and `recollect import URL memory.jsonl`: a memory as a file, and back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from recollect import exit_codes
from recollect.commands.console import echo
from recollect.commands.existing import require_file
from recollect.errors import RecollectError, Refused
from recollect.opening import open_store
from recollect.printable import counted
from recollect.secret import scheme_of, scrub
from recollect.transfer import LEFT_OUT, Moved, check_file, export_lines, import_file
from recollect.watch.parts import PREFIX, is_canary

_Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        envvar="RECOLLECT_URL",
        show_envvar=True,
        help="The store, as given to open_store. In the environment a password is not seen by `ps`.",
    ),
]


def export(
    url: _Url,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only sessions whose ids begin with this.")
    ] = None,
) -> None:
    """Write every live session to standard output, as JSON lines with counts and checksums.

    The store may be in use: each session is exported as it was at one moment. Notices go to standard error.

    Exit codes: 0 exported, 2 not exported, or not to the end (no store or no engine there, too), 3 damaged records are
    missing from the file.
    """
    moved = Moved()
    try:
        asyncio.run(_export(url, prefix, moved))
    except (RecollectError, _Incomplete) as error:
        echo(f"recollect export: {scrub(str(error), url)}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    except BrokenPipeError:
        echo("recollect export: the reader has gone; the exported file is incomplete", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    except OSError as error:
        told = f"standard output: {error.strerror or error}; the exported file is incomplete"
        echo(f"recollect export: {told}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    echo(f"exported {_counted(moved)}", err=True)
    echo(f"not in the file: {LEFT_OUT}", err=True)
    if moved.left_out:
        told = f"nor {counted(moved.left_out, 'session')} of `recollect watch`"
        echo(f"{told}; --prefix {PREFIX}/ exports them", err=True)
    if moved.damaged:
        which = "damaged record is" if moved.damaged == 1 else "damaged records are"
        echo(f"{moved.damaged:,} {which} not in the file; history() shows what is left of them", err=True)
        raise typer.Exit(exit_codes.INCONCLUSIVE)


class _Incomplete(Exception):
    """The export ended after it had begun to write."""


async def _export(url: str, prefix: str | None, moved: Moved) -> None:
    out = sys.stdout.buffer
    require_file(url)
    async with open_store(url) as store:
        try:
            asked_for = (prefix or "").startswith(f"{PREFIX}/")
            leave_out = None if asked_for else is_canary
            async for line in export_lines(store, moved, prefix, leave_out=leave_out):
                out.write(line)
        except RecollectError as error:
            raise _Incomplete(f"{error}; the exported file is incomplete") from error
    out.flush()


def import_(
    url: _Url,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="What `recollect export` wrote."),
    ],
) -> None:
    """Write the sessions of an exported file into a store, and read each of them back.

    An incomplete file is refused before anything is written. If the import was stopped, run it again: nothing is
    stored twice. Sessions keep their sequences, turn ids and times to live.

    Exit codes: 0 imported, 2 not imported, or not to the end (no engine there, too).
    """
    try:
        _refuse_swapped(url, file)
        moved = asyncio.run(_import(url, file))
    except RecollectError as error:
        echo(f"recollect import: {scrub(str(error), url)}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    except OSError as error:
        echo(f"recollect import: {file}: {error.strerror or error}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    echo(_told(moved))
    if moved.expired:
        which = "session of the file has" if moved.expired == 1 else "sessions of the file have"
        echo(
            f"{moved.expired:,} {which} expired since, and {'was' if moved.expired == 1 else 'were'} not imported"
        )


async def _import(url: str, file: Path) -> Moved:
    moved = Moved()
    check_file(file)  # before a store is made for it
    async with open_store(url) as store:
        async for so_far in import_file(store, file):
            moved = so_far
    return moved


def _refuse_swapped(url: str, file: Path) -> None:
    """Import takes the address first, and `cp` has taught everybody the other order."""
    if not scheme_of(url) and ":/" in str(file):  # a path has lost one slash of "://"
        raise Refused(f"the address comes first, then the file: recollect import URL {url}")


def _told(moved: Moved) -> str:
    if not moved.present:
        return f"imported {_counted(moved)}, and read them back"
    if moved.present == moved.messages:
        there = (
            "was there already, and read back as it is"
            if moved.messages == 1
            else "were there already, and read back as they are"
        )
        return f"nothing to import: {_counted(moved)} {there} in the file"
    new = moved.messages - moved.present
    return f"imported {new:,} of {_counted(moved)}, and read them back; the others were there already"


def _counted(moved: Moved) -> str:
    messages = f"{moved.messages:,} message{'' if moved.messages == 1 else 's'}"
    return f"{messages} of {moved.sessions:,} session{'' if moved.sessions == 1 else 's'}"
