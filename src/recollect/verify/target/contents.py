"""What applications really store: more than the text of a user and an assistant.

`KINDS` is the table: all sorts of roles, tool calls and their results, lists of blocks with an image, the application's
own names and metadata, texts that a careless store tidies up. A message of a kind is a pure function of its number, so
that a reader can rebuild it: the text carries the number and the kind (`marked_text.mark_kind`), and the whole message
is compared where it is read. How each interface writes such a message, and what it cannot express, is in `interfaces`.

`REAL_IDS` are session ids that a pipe or a history cannot hold or show as they are. Everywhere but in the target's own
process they go by their label.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from recollect.verify.target.marked_text import mark_kind

CONTENT = "content:"
"""Prefix of a kind in a target's abilities: the target can take it."""

AGAIN = "again"
"""The kind of a user's text without a mark: a repeated one, or an empty one."""

IMAGE = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
TOOL = "look_up"


class Spoken(NamedTuple):
    """A message in OpenAI's chat format, as most mappings are; `fields` are those besides role and content."""

    role: str
    content: str | list[Any]
    fields: dict[str, Any] = {}  # noqa: RUF012 — never changed


class ContentKind(NamedTuple):
    """One row of the table. `called` is what reports call it."""

    called: str
    text: str
    speak: Callable[[int, str], Spoken]


def _says(role: str) -> Callable[[int, str], Spoken]:
    return lambda number, text: Spoken(role, text)


def _call(number: int, text: str) -> Spoken:
    function = {"name": TOOL, "arguments": f'{{"order": {number}}}'}
    return Spoken(
        "assistant",
        text,
        {"tool_calls": [{"id": call_id(number), "type": "function", "function": function}]},
    )


def _result(number: int, text: str) -> Spoken:
    return Spoken("tool", text, {"tool_call_id": call_id(number)})


def _blocks(number: int, text: str) -> Spoken:
    return Spoken(
        "user", [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": IMAGE}}]
    )


def _named(number: int, text: str) -> Spoken:
    metadata = {
        "n": number,
        "trace": {"span": f"{number:08x}", "tags": ["beta", "größe"], "parent": None},
        "score": 0.25,
        "shown": True,
    }
    return Spoken("user", text, {"name": "Xiao Li", "metadata": metadata})


def call_id(number: int) -> str:
    return f"call_{number}"


KINDS: dict[str, ContentKind] = {
    "system": ContentKind("the role system", "answer briefly", _says("system")),
    "tool": ContentKind("a tool's result", "order: on its way", _result),
    "call": ContentKind("a tool call", "I will look that up.", _call),
    "blocks": ContentKind("blocks with an image", "what is this?", _blocks),
    "named": ContentKind("a name and metadata", "as I said", _named),
    "developer": ContentKind("the role developer", "prefer metric units", _says("developer")),
    "observer": ContentKind("a role that does not exist yet", "noted", _says("observer")),
    "spaced": ContentKind("blanks at the end", "def f():\n    return 1 \t\n\n  ", _says("user")),
    "decomposed": ContentKind("text that is not normalised", "cafe\u0301, ﬁne, 5 \u212b", _says("user")),
    "surrogate": ContentKind("half of an emoji", "cut off: \ud83d", _says("user")),
}

TEXTS = frozenset({"spaced", "decomposed", "surrogate"})
"""The kinds that can be expressed where a message is nothing but its text."""


def text_of(number: int, kind: str) -> str:
    """The text of a message of a kind, with its mark."""
    return mark_kind(number, kind, KINDS[kind].text)


def spoken(number: int, kind: str) -> Spoken:
    """The whole message of this number and kind."""
    return KINDS[kind].speak(number, text_of(number, kind))


_DIGITS = "0123456789" * 20
"""As long as a column of 255 characters still takes."""

REAL_IDS: dict[str, str] = {
    "user\\ud83d": "user\ud83d",
    "user\\udc00": "user\udc00",
    "user\\ufffd": "user\ufffd",
    "caf\\u00e9": "caf\u00e9",
    "cafe\\u0301": "cafe\u0301",
    "user\\u00a0": "user\u00a0",
    "user\\u200b": "user\u200b",
    "user\\x00": "user\x00",
    "user\\t": "user\t",
    "user\\n": "user\n",
    "200 digits, the last is 9": _DIGITS,
    "200 digits, the last is 8": _DIGITS[:-1] + "8",
    "200 digits, the first is 1": "1" + _DIGITS[1:],
}
"""Labels of session ids → the ids. A label stands for what cannot be seen or sent, or is too long to be compared."""


def real_id(session: str) -> str:
    """The id that a store gets for the session with this name in the history."""
    return REAL_IDS.get(session, session)
