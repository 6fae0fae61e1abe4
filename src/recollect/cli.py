"""The command line. Each command is a module of `recollect.commands`, named here and imported when it is asked for.

Importing only the one that runs keeps `recollect migrate` independent of the kit's dependencies, and quick.
"""

from __future__ import annotations

import importlib
import signal
import sys
from typing import NamedTuple

import typer

from recollect import exit_codes
from recollect.errors import RecollectError


class _Command(NamedTuple):
    module: str
    function: str
    extra: str | None
    """The extra whose packages it needs."""


COMMANDS: dict[str, _Command] = {
    "verify": _Command("recollect.commands.verify", "verify", "verify"),
    "explore": _Command("recollect.commands.explore", "explore", "verify"),
    "replay": _Command("recollect.commands.replay", "replay", "verify"),
    "report": _Command("recollect.commands.report", "report", "verify"),
    "init": _Command("recollect.commands.init", "init", "verify"),
    "engines": _Command("recollect.commands.engines", "engines", "verify"),
    "doctor": _Command("recollect.commands.doctor", "doctor", None),
    "chat": _Command("recollect.commands.chat", "chat", "chat"),
    "recall-eval": _Command("recollect.commands.recall_eval", "recall_eval", "chat"),
    "migrate": _Command("recollect.commands.migrate", "migrate", "postgres"),
}


def build(arguments: list[str]) -> typer.Typer:
    """The application with the command that was asked for, or with all of them for the help."""
    app = typer.Typer(
        name="recollect",
        help="LLM memory that is provably not forgotten.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
    )
    app.callback()(_group)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    wanted = {asked: COMMANDS[asked]} if asked in COMMANDS else COMMANDS
    for name, command in wanted.items():
        _add(app, name, command)
    return app


def _group() -> None:
    """Keeps `recollect COMMAND` a group, also while there is only one command."""


def _add(app: typer.Typer, name: str, command: _Command) -> None:
    try:
        function = getattr(importlib.import_module(command.module), command.function)
    except ImportError as error:
        if (error.name or "").startswith("recollect"):
            raise
        missing = f"recollect {name} needs {error.name}: pip install 'recollect[{command.extra}]'"

        def explain() -> None:
            typer.echo(missing, err=True)
            raise typer.Exit(exit_codes.USAGE)

        explain.__doc__ = missing
        function = explain
    app.command(name)(function)


def main() -> None:
    # Also where a script started us in its background, which makes interrupts be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        build(sys.argv[1:])()
    except RecollectError as error:  # it says what to do next; a traceback would hide that
        typer.echo(f"recollect: {error}", err=True)
        sys.exit(exit_codes.USAGE)


if __name__ == "__main__":
    main()
