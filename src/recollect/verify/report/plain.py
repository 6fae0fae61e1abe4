"""Text from a run, made safe to write down: session ids, errors and excerpts may hold anything.

Markup is escaped by whoever writes markup. What is left are characters that no HTML or XML document may hold (controls,
lone surrogates) and those that make text read other than it is (direction overrides): they are shown as escapes.
"""

from __future__ import annotations

import re

_UNWRITABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
SHOWN_MAX = 800


def plain(text: str) -> str:
    """The text with unwritable characters as ``\\x00`` or ``\\u202e``, and not longer than anybody reads."""
    if len(text) > SHOWN_MAX:
        text = f"{text[:SHOWN_MAX]}… ({len(text) - SHOWN_MAX} more characters)"
    return _UNWRITABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
