"""What is printed: counts with their nouns, and text from elsewhere made safe. Session ids, errors and
excerpts may hold anything.

Control characters move a terminal's cursor, change its title or clear it; lone surrogates cannot be written; direction
overrides make text look like something else. All are shown as escapes.
"""

import re

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """The text with unprintable characters as ``\\x1b`` or ``\\u202e``; lines and tabs stay."""
    return _UNPRINTABLE.sub(_escape, text)


def counted(count: int, what: str) -> str:
    """`1 message`, `1,806 messages`."""
    return f"{count:,} {what}{'s'[: count != 1]}"


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
