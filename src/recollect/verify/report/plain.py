"""Text from a run, made safe to write down and short enough to read.

Markup is escaped by whoever writes markup. What is left are characters that no HTML or XML document may hold, and those
that make text read other than it is: they are shown as escapes.
"""

from __future__ import annotations

from recollect.printable import printable

SHOWN_MAX = 800


def plain(text: str) -> str:
    """The text with unwritable characters as ``\\x00`` or ``\\u202e``, and not longer than anybody reads."""
    if len(text) > SHOWN_MAX:
        text = f"{text[:SHOWN_MAX]}… ({len(text) - SHOWN_MAX} more characters)"
    return printable(text)
