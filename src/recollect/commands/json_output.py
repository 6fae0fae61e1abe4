"""`--json`, the same in every command: `--json` and `--json -` print one document, `--json FILE` writes it.

For some commands `--json` was a flag before it could name a file, and in `recollect doctor --json URL` the URL must
still be the URL. After their `--json`, only `-` or a name that ends in `.json` is taken as the file; with `--json=NAME`
any name is.

A command that fails before it has a document writes one that has the `error` instead, so that whoever reads the file or
the pipe finds JSON in any case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from recollect import __version__, exit_codes, private
from recollect.commands.console import echo, last_error
from recollect.errors import RecollectError
from recollect.secret import given_secrets

OPTION = "--json"
PRINTED = "-"
_File = TypeVar("_File", str | None, Path | None)
ONCE_FLAGS = frozenset({"doctor", "engines", "erase", "recall-eval"})


def writable(file: _File) -> _File:
    """Refuses a report that could not be written, before the work and not after it."""
    if file is not None and file != PRINTED:
        try:
            private.check_artifact(Path(file))
        except OSError as error:
            raise typer.BadParameter(f"cannot write {file}: {error.strerror}; give another FILE") from None
    return file


JsonOption = Annotated[
    str | None,
    typer.Option(
        OPTION,
        metavar="FILE",
        help="Write one JSON document; - or no FILE is standard output.",
        callback=writable,
    ),
]


_is_written: ContextVar[bool] = ContextVar("is_written", default=False)
_META = "recollect.json"


class JsonCommand(TyperCommand):
    """A command whose `--json` may stand without a value, and has its document also if the command fails."""

    # Which library the context's class comes from depends on the release of Typer.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = with_value(args, once_a_flag=ctx.info_name in ONCE_FLAGS)
        ctx.meta[_META] = file_in(given)
        with _told_in(ctx.meta[_META]):
            return super().parse_args(ctx, given)

    def invoke(self, ctx: Any) -> Any:
        with _told_in(ctx.meta[_META]):
            return super().invoke(ctx)


@contextmanager
def _told_in(file: str | None) -> Iterator[None]:
    """Writes why the command failed, unless it has written a document itself."""
    before, told = _is_written.set(False), last_error.set(None)
    try:
        yield
    except Exception as error:
        failed = getattr(error, "exit_code", exit_codes.INTERNAL) != 0
        if file is not None and failed and not _is_written.get():
            document = {"recollect": __version__, "status": "unknown", "error": _reason(error)}
            write(json.dumps(document, indent=2, ensure_ascii=False), file)
        raise
    finally:
        _is_written.reset(before)
        last_error.reset(told)


def _reason(error: Exception) -> str:
    if isinstance(error, typer.Exit | typer.Abort):
        reason = last_error.get() or "it was not done; standard error says why"
    elif hasattr(error, "format_message"):  # the parser's complaints
        reason = error.format_message()
    elif isinstance(error, RecollectError):
        reason = str(error)
    else:
        reason = f"this is a bug in recollect; please report it: {type(error).__name__}: {error}"
    return given_secrets(sys.argv[1:])(reason)


def file_in(words: list[str]) -> str | None:
    """The value of `--json`, before the command line is parsed."""
    options = words[: words.index("--")] if "--" in words else words
    found = None
    for place, word in enumerate(options):
        if word == OPTION:
            found = options[place + 1]  # `with_value` sees to it that there is one
        elif word.startswith(f"{OPTION}="):
            found = word.removeprefix(f"{OPTION}=")
    return found


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
    """Writes one document to where `--json` says; half a character that somebody stored stays an escape."""
    _is_written.set(True)
    text = text.encode("utf-8", "backslashreplace").decode()
    if file == PRINTED:
        typer.echo(text)
        return
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        private.write_artifact(Path(file), text + "\n")
    except OSError as error:
        echo(f"cannot write {error.filename}: {error.strerror}; give another FILE to --json", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
