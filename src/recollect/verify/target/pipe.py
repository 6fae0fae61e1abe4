"""What the runner asks of a worker, and what it hears back: one request, one reply, over a pipe."""

from typing import Literal

import msgspec


class Said(msgspec.Struct, array_like=True):
    """One message to write."""

    number: int
    text: str


class Append(msgspec.Struct, tag="append"):
    session: str
    said: list[Said]
    turn: str | None = None
    expect: int | None = None


class Save(msgspec.Struct, tag="save"):
    """Writes back the list that the latest read returned, without its first `drop`, with these at the end."""

    session: str
    said: list[Said]
    drop: int = 0


class Read(msgspec.Struct, tag="read"):
    session: str
    last: int | None = None
    after: int | None = None


class ReadContext(msgspec.Struct, tag="context"):
    session: str


class Forget(msgspec.Struct, tag="forget"):
    session: str


class Search(msgspec.Struct, tag="search"):
    session: str


class Watch(msgspec.Struct, tag="watch"):
    """Follow the lines of the store's own code: record them all, die or stop at one of them, or stop at each."""

    how: Literal["record", "die", "stop", "step"]
    line: str = ""
    """``file.py:17``, as a recording gave it."""


class Close(msgspec.Struct, tag="close"):
    pass


Request = Append | Save | Read | ReadContext | Forget | Search | Watch | Close


class Odd(msgspec.Struct, array_like=True):
    """An element that is not simply a known message, unchanged."""

    number: int | None
    intact: bool
    damaged: bool
    excerpt: str


class Elements(msgspec.Struct, tag="elements"):
    """What a read returned: message numbers, and -1 for the next of `odd`."""

    numbers: list[int]
    odd: list[Odd] = []
    sequence: int | None = None
    """The last element's, where the store has sequences."""


class Acked(msgspec.Struct, tag="acked"):
    sequence: int | None = None
    durability: str | None = None
    replicas: int = 0


class Parts(msgspec.Struct, tag="parts"):
    parts: list[Elements]


class FoundBy(msgspec.Struct, tag="found"):
    listed: list[int]
    found: list[int]


class Lines(msgspec.Struct, tag="lines"):
    lines: list[str]


class Failed(msgspec.Struct, tag="failed"):
    outcome: Literal["fail", "unknown"]
    error: str


class Ready(msgspec.Struct, tag="ready"):
    """The worker's first word: what it found the target to be."""

    shape: str
    abilities: list[str]
    traits: list[str]


class Broken(msgspec.Struct, tag="broken"):
    """The worker's first word, if the target cannot be used at all."""

    reason: str


class AtLine(msgspec.Struct, tag="at-line"):
    """The worker stands on the line it was told to stop at, and waits for the runner's next request."""

    line: str


Reply = Elements | Acked | Parts | FoundBy | Lines | Failed | Ready | Broken | AtLine

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
