"""The terminal that commands print to: what others wrote reaches it as text, never as control sequences."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from recollect.printable import printable

last_error: ContextVar[str | None] = ContextVar("last_error", default=None)
"""What was last said on standard error; `--json` has it too."""


def echo(text: str, *, err: bool = False) -> None:
    """`typer.echo` for text that may quote what others wrote, as most errors do."""
    if err:
        last_error.set(text)
    typer.echo(printable(text), err=err)


class PlainConsole(Console):
    """Escapes control characters in all text, wherever it comes from. Colours are Rich's own and stay.

    A reader who has gone, as `head` does, changes no exit code: Rich would end the program with 1, which here means
    that memory is lost.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def tell_written(console: Console, *files: Path | str | None) -> None:
    """Says where the reports are; what went to standard output is there already."""
    for file in files:
        if file is not None and file != "-":
            console.print(f"wrote {file}", highlight=False, markup=False, soft_wrap=True)
