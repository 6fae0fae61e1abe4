"""`recollect verify --list`: the released stores that have a name, and which of them are installed here."""

import json
from collections.abc import Sequence

import typer

from recollect import __version__, exit_codes
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo
from recollect.verify.target.registry import named_targets


def names_first(listed: bool, targets: Sequence[str] | None, json_file: str | None = None) -> tuple[str, ...]:
    """The targets; ends the command if only the list of names is wanted, or if a target is not installed."""
    if listed:
        if json_file is not None:
            json_output.write(_names_as_json(), json_file)
        if json_file != json_output.PRINTED:
            _show_names()
        raise typer.Exit
    _check_installed(targets or ())
    return tuple(targets or ())


def _show_names() -> None:
    """Prints one line for each: its name, its engine, and its version or how to get it."""
    rows = named_targets()
    width = max(map(len, rows), default=0)
    engine_width = max((len(row.engine) for row in rows.values()), default=0)
    console = PlainConsole(markup=False, emoji=False, highlight=False)
    for name, row in rows.items():
        told = row.pip if row.lacking else row.released
        console.print(f"{name:{width}}  {row.engine:{engine_width}}  {told}", soft_wrap=True)


def _names_as_json() -> str:
    stores = [
        {
            "name": name,
            "engine": row.engine,
            "installed": None if row.lacking else row.released,
            "install": row.pip,
        }
        for name, row in named_targets().items()
    ]
    return json.dumps({"recollect": __version__, "stores": stores}, indent=2)


def _check_installed(targets: Sequence[str]) -> None:
    """Ends the command with what is missing, before anything is started."""
    rows = named_targets() if any(":" not in target for target in targets) else {}
    missing = [rows[target] for target in targets if target in rows and rows[target].lacking]
    for row in missing:
        what = "something that it needs" if row.installed else row.distribution
        echo(f"{what} is not installed: {row.pip}", err=True)
    if missing:
        raise typer.Exit(exit_codes.USAGE)
