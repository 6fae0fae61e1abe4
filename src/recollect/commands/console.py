"""The terminal that commands print to: what others wrote reaches it as text, never as control sequences."""

from __future__ import annotations

from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from recollect.printable import printable


def echo(text: str, *, err: bool = False) -> None:
    """`typer.echo` for text that may quote what others wrote, as most errors do."""
    typer.echo(printable(text), err=err)


class PlainConsole(Console):
    """Escapes control characters in all text, wherever it comes from. Colours are Rich's own and stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
