"""What a store or somebody's session id says is printed as text: it gives a terminal no orders."""

from __future__ import annotations

import io
import re

import pytest
from rich.table import Table
from rich.text import Text

from recollect.commands.console import PlainConsole

ORDERS = {
    "clears the screen": "\x1b[2J",
    "sets the title": "\x1b]0;owned\x07",
    "in one byte": "\x9b2J",
    "goes back": "held\x08\x08\x08\x08lost",
    "reads backwards": "\u202ehello",
    "a lone surrogate": "\ud800",
}
OWN = re.compile(r"\x1b\[[\d;]*m")
"""Rich's colours."""


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_no_order_reaches_the_terminal(order: str) -> None:
    printed = io.StringIO()
    console = PlainConsole(file=printed, force_terminal=True, width=120)
    console.print(order, markup=False)
    console.print(Text(f"a {order} b", style="red"))
    table = Table(f"head {order}")
    table.add_row(order)
    console.print(table)
    left = OWN.sub("", printed.getvalue())
    assert not [character for character in left if not character.isprintable() and character != "\n"]


def test_ordinary_text_stays_as_it_is() -> None:
    printed = io.StringIO()
    console = PlainConsole(file=printed, width=120)
    console.print("held ✓ für 東京 🎉\tand\nmore", markup=False)
    assert "held ✓ für 東京 🎉" in printed.getvalue()
    assert "\\" not in printed.getvalue()
