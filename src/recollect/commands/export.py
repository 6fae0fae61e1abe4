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
from recollect.errors import RecollectError
from recollect.opening import open_store
from recollect.secret import scrub
from recollect.transfer import LEFT_OUT, Moved, check_file, export_lines, import_file

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
    """
    moved = Moved()
    try:
        asyncio.run(_export(url, prefix, moved))
    except RecollectError as error:
        echo(f"recollect export: {scrub(str(error), url)}; the file is incomplete", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    except BrokenPipeError:
        echo("recollect export: the reader has gone; the file is incomplete", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    echo(f"exported {_counted(moved)}", err=True)
    echo(f"not in the file: {LEFT_OUT}", err=True)
    if moved.damaged:
        echo(f"{moved.damaged} damaged records are not in the file; history() shows them", err=True)
        raise typer.Exit(exit_codes.INCONCLUSIVE)


async def _export(url: str, prefix: str | None, moved: Moved) -> None:
    out = sys.stdout.buffer
    require_file(url)
    async with open_store(url) as store:
        async for line in export_lines(store, moved, prefix):
            out.write(line)
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
    """
    try:
        moved = asyncio.run(_import(url, file))
    except RecollectError as error:
        echo(f"recollect import: {scrub(str(error), url)}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    except OSError as error:
        echo(f"recollect import: {file}: {error.strerror or error}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    echo(f"imported {_counted(moved)}, and read them back")
    if moved.expired:
        echo(f"{moved.expired:,} sessions of the file have expired since, and were not imported")


async def _import(url: str, file: Path) -> Moved:
    moved = Moved()
    check_file(file)  # before a store is made for it
    async with open_store(url) as store:
        async for so_far in import_file(store, file):
            moved = so_far
    return moved


def _counted(moved: Moved) -> str:
    return f"{moved.messages:,} messages of {moved.sessions:,} sessions"
