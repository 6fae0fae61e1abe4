"""`recollect engines`: what was found, which version, from which provider, what is missing and how to get it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import typer

from recollect import exit_codes
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.json_output import JsonOption
from recollect.verify.host.errors import EngineError
from recollect.verify.providers.listing import everything


def engines(
    json_file: JsonOption = None,
) -> None:
    """Show which engines this machine has, which are missing, and the command that gets them."""
    try:
        listing = everything()
    except EngineError as error:
        echo(f"recollect: {error}", err=True)
        raise typer.Exit(exit_codes.USAGE) from error
    if json_file is not None:
        json_output.write(json.dumps(asdict(listing), indent=2), json_file)
    if json_file == json_output.PRINTED:
        return
    console = PlainConsole(markup=False, emoji=False, highlight=False)  # `recollect[patroni]` is no style
    found = [
        (one.engine, f"{one.product} {one.version}", one.provider, ", ".join(one.features), one.location)
        for one in listing.found
    ]
    _show(console, "Found", ("engine", "version", "provider", "notes", "path or image"), found)
    missing = [(gap.engine, gap.version, gap.provider, gap.reason, gap.command) for gap in listing.missing]
    if missing:
        _show(console, "Missing", ("engine", "version", "provider", "why", "get it with"), missing)
    tell_written(console, json_file)


def _show(console: PlainConsole, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The last column is meant to be copied: it is not broken, however narrow the terminal."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)][:-1]
    console.print(title, style="bold")
    for row in (head, *rows):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        style = "dim" if row is head else None
        console.print("  ".join(["", *cells, row[-1]]), soft_wrap=True, style=style)
