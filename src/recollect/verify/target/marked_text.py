"""The text of a test message: it carries its own number and checksum, so that a read can be judged where it happens.

``#17.9f3a21c0 the rest``: message 17, and the CRC of its role and the rest. A worker recognises it in whatever a store
returns. ``#17.9f3a21c0~call the rest`` is a message of a kind (see `contents`): number and kind determine all of it.
Two kinds of text carry no mark, because that is what they test: an empty text, and one that is repeated. The runner
matches those by their order in the session.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MARK = re.compile(r"#(\d{1,12})\.([0-9a-f]{8}) ")
_MARK_OF_KIND = re.compile(r"#(\d{1,12})\.([0-9a-f]{8})~([a-z]{1,20}) ")
_RAW_MARK = re.compile(rb"#(\d{1,12})\.[0-9a-f]{8}(?:~[a-z]{1,20})? ")
_RAW_END = re.compile(rb"[^ !#-\[\]-~]")
"""Whatever is no plain letter, sign or space: a quote, a backslash, a control character, a byte of another format."""
ROLES = {"human": "user", "ai": "assistant", "HumanMessage": "user", "AIMessage": "assistant"}
"""What frameworks call them."""

EXCERPT_CHARACTERS = 120
SHOWN_CHARACTERS = 40


class Recognised(NamedTuple):
    """What a worker recognises in one element: the message's number, or an excerpt if there is none. It is sent over
    the pipe as it is."""

    number: int | None
    intact: bool
    damaged: bool = False
    """The store itself returned it as undecodable."""
    excerpt: str = ""
    unkept: bool = False
    """The only difference is a missing field that the store's interface never promised to keep."""
    role: str = ""
    """Of a text without a number, if it has one."""


def excerpt(text: str) -> str:
    """The beginning of a text, safe to send and to write down."""
    return text[:EXCERPT_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def excerpt_of_whole(text: str) -> str:
    """The same, but texts that begin alike are told apart by how they go on."""
    if len(text) <= EXCERPT_CHARACTERS:
        return excerpt(text)
    return (
        f"{excerpt(text[: EXCERPT_CHARACTERS - 10])}…{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"
    )


def role_of(number: int) -> str:
    return "assistant" if number % 2 else "user"


def mark(number: int, body: str) -> str:
    return f"#{number}.{_crc(role_of(number), body):08x} {body}"


def mark_kind(number: int, kind: str, body: str) -> str:
    return f"#{number}.{_crc(f'{kind}{number}', body):08x}~{kind} {body}"


def recognise(text: str, role: str | None = None, metadata: Mapping[str, Any] | None = None) -> Recognised:
    found = _MARK.match(text) or _MARK.search(text)
    if found is None:
        called = ROLES.get(role, role) if role is not None else ""
        return Recognised(None, intact=True, excerpt=excerpt_of_whole(text), role=called)
    number = int(found[1])
    expected = role_of(number)
    changed = ""
    if found.start() != 0 or int(found[2], 16) != _crc(expected, text[found.end() :]):
        changed = _shown_changed(text)
    elif role is not None and ROLES.get(role, role) != expected:
        changed = f"role {expected!r} came back as {excerpt(role)!r}"
    elif metadata and metadata.get("n", number) != number:
        changed = f"metadata 'n': {number} came back as {excerpt(repr(metadata['n']))}"
    return Recognised(number, not changed, excerpt=excerpt(changed))


def _shown_changed(text: str) -> str:
    """As it came back; of a long one also how long it is now, because most changes of long texts are cuts."""
    if len(text) <= EXCERPT_CHARACTERS:
        return f"it came back as {text!r}"
    return f"it came back with {len(text):,} characters, as {text[:SHOWN_CHARACTERS]!r}…"


def kind_marked(text: str) -> tuple[int, str] | None:
    """The number and kind of the message whose mark is somewhere in this text."""
    found = _MARK_OF_KIND.search(text)
    return None if found is None else (int(found[1]), found[3])


def numbers_in(raw: bytes) -> Iterator[int]:
    """The numbers of all test messages in an engine's raw bytes."""
    return (int(found[1]) for found in _RAW_MARK.finditer(raw))


def marks_in(raw: bytes) -> Iterator[tuple[int, int, int]]:
    """Where the texts of test messages are in an engine's raw bytes: the mark's beginning, the text's, its end."""
    for found in _RAW_MARK.finditer(raw):
        ended = _RAW_END.search(raw, found.end())
        yield found.start(), found.end(), len(raw) if ended is None else ended.start()


def _crc(role: str, body: str) -> int:
    return zlib.crc32(body.encode("utf-8", "surrogatepass"), zlib.crc32(role.encode()))
