"""Text from a run, made safe to write down and short enough to read.

Whoever writes markup escapes markup. This module handles the rest: characters that no HTML or XML document may hold,
and those that make text look different from what it is. They are shown as escapes.
"""

from __future__ import annotations

from recollect.printable import printable

SHOWN_MAX = 800


def plain(text: str) -> str:
    """The text with unwritable characters as ``\\x00`` or ``\\u202e``, cut to a readable length."""
    if len(text) > SHOWN_MAX:
        text = f"{text[:SHOWN_MAX]}… ({len(text) - SHOWN_MAX} more characters)"
    return printable(text)
