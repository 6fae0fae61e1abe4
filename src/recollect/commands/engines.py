"""`recollect engines`: what was found, which version, from which provider, what is missing and how to get it."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.table import Table

from recollect import exit_codes
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.json_output import JsonOption
from recollect.verify.host.errors import EngineError
from recollect.verify.providers.listing import Listing, everything


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
    console = PlainConsole(markup=False, emoji=False)  # `recollect[patroni]` is no style
    console.print(_found(listing))
    if listing.missing:
        console.print(_missing(listing))
    tell_written(console, json_file)


def _found(listing: Listing) -> Table:
    table = Table("engine", "version", "provider", title="Found", title_justify="left")
    table.add_column("path or image", overflow="fold")
    table.add_column("notes")
    for build in listing.found:
        notes = ", ".join(build.features)
        table.add_row(build.engine, f"{build.product} {build.version}", build.provider, build.location, notes)
    return table


def _missing(listing: Listing) -> Table:
    table = Table("engine", "version", "provider", title="Missing", title_justify="left")
    table.add_column("why", overflow="fold")
    table.add_column("get it with", overflow="fold")
    for gap in listing.missing:
        table.add_row(gap.engine, gap.version, gap.provider, gap.reason, gap.command)
    return table
