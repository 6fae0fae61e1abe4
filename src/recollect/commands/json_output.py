"""`--json`, the same in every command: `--json` and `--json -` print one document, `--json FILE` writes it.

For some commands `--json` was a flag before it could name a file, and in `recollect doctor --json URL` the URL must
still be the URL. After their `--json`, only `-` or a name that ends in `.json` is taken as the file; with `--json=NAME`
any name is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from recollect import exit_codes, private
from recollect.commands.console import echo

OPTION = "--json"
PRINTED = "-"
ONCE_FLAGS = frozenset({"doctor", "engines", "erase", "recall-eval"})

JsonOption = Annotated[
    str | None,
    typer.Option(OPTION, metavar="FILE", help="Write one JSON document; - or no FILE is standard output."),
]


class JsonCommand(TyperCommand):
    """A command whose `--json` may stand without a value."""

    # Which library the context's class comes from depends on the release of Typer.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_value(args, once_a_flag=ctx.info_name in ONCE_FLAGS))


def with_value(args: list[str], *, once_a_flag: bool) -> list[str]:
    """The arguments, with `-` added to a `--json` that names no file."""
    given: list[str] = []
    for place, word in enumerate(args):
        if word == "--":
            return given + args[place:]
        if word == OPTION and not _is_file(args[place + 1 : place + 2], once_a_flag=once_a_flag):
            word = f"{OPTION}={PRINTED}"
        given.append(word)
    return given


def _is_file(following: list[str], *, once_a_flag: bool) -> bool:
    if not following or following == [PRINTED]:
        return bool(following)
    name = following[0]
    return not name.startswith("-") and (name.endswith(".json") or not once_a_flag)


def write(text: str, file: str) -> None:
    """Writes one document to where `--json` says."""
    if file == PRINTED:
        typer.echo(text)
        return
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        private.write_artifact(Path(file), text + "\n")
    except OSError as error:
        echo(f"cannot write {error.filename}: {error.strerror}; give another FILE to --json", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
