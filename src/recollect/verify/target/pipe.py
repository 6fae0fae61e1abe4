"""What the runner asks of a worker, and what it hears back: one request, one reply, over a pipe."""

from typing import Literal

import msgspec

from recollect.verify.target.marked_text import Recognised
from recollect.verify.target.outcomes import Failure

How = Literal["record", "die", "stop", "step"]


class Said(msgspec.Struct, array_like=True):
    """One message to write."""

    number: int
    text: str
    kind: str = ""
    """Of `contents`; its number and its kind then say all of it."""


class AppendMessages(msgspec.Struct, tag="append"):
    """Appends these as one turn."""

    session: str
    said: list[Said]
    turn: str | None = None
    expect: int | None = None


class Save(msgspec.Struct, tag="save"):
    """Writes back the list that the latest read returned, without its first `drop`, with these at the end."""

    session: str
    said: list[Said]
    drop: int = 0


class Replace(msgspec.Struct, tag="replace"):
    """Puts these in the place of everything, if the session is still at this position."""

    session: str
    said: list[Said]
    turn: str | None = None
    expect: int | None = None


class Retract(msgspec.Struct, tag="retract"):
    """Removes the elements that stood at these places of the list that the latest read returned."""

    session: str
    places: list[int]
    turn: str | None = None
    expect: int | None = None


class Read(msgspec.Struct, tag="read"):
    """Reads the session: all of it, its last n, or what comes after a sequence of the store's own.

    With `positioned` its position is asked for first, so that what is read is not older than that."""

    session: str
    last: int | None = None
    after: int | None = None
    positioned: bool = False


class ReadContext(msgspec.Struct, tag="context"):
    """Reads a context that the target assembles from several statements."""

    session: str


class Forget(msgspec.Struct, tag="forget"):
    """Forgets the session."""

    session: str


class SearchIndex(msgspec.Struct, tag="search"):
    """Asks the index for everything of the session, and lists its rows."""

    session: str


class Watch(msgspec.Struct, tag="watch"):
    """Follow the lines of the store's own code: record them all, die or stop at one of them, or stop at each."""

    how: How
    line: str = ""
    """``file.py:17``, as a recording gave it."""


class GiveUp(msgspec.Struct, tag="give-up"):
    """The caller of the next request gives it up after this share of what such a request usually takes. No reply."""

    share: float


class Close(msgspec.Struct, tag="close"):
    """Closes the store, and ends."""


Request = (
    AppendMessages | Save | Replace | Retract | Read | ReadContext | Forget | SearchIndex | Watch | Close
)
Word = Request | GiveUp
"""A request, or what is said ahead of one."""


class Elements(msgspec.Struct, tag="elements"):
    """What a read returned: message numbers, and -1 for the next of `odd`."""

    numbers: list[int]
    odd: list[Recognised] = []
    """What is not simply a known message, unchanged."""
    sequence: int | None = None
    """The last element's, where the store has sequences."""
    position: int | None = None
    """The session's, before it was read, if it was asked for."""


class Acked(msgspec.Struct, tag="acked"):
    """It is done; with what the store's receipt says, where there is one."""

    sequence: int | None = None
    durability: str | None = None
    replicas: int = 0


class Parts(msgspec.Struct, tag="parts"):
    """What each statement of a context read returned."""

    parts: list[Elements]


class FoundBy(msgspec.Struct, tag="found"):
    """The messages that are rows, and those that the index finds."""

    listed: list[int]
    found: list[int]


class Lines(msgspec.Struct, tag="lines"):
    """A watched write is done, and executed these lines of the store's code."""

    lines: list[str]


class Failed(msgspec.Struct, tag="failed"):
    """The store raised; see `outcomes` for what that says."""

    outcome: Failure
    error: str
    kinds: list[str] = []
    """Names of the error's class and its bases."""
    given_up: bool = False
    """Its caller did not wait for the end."""


class Ready(msgspec.Struct, tag="ready"):
    """The worker's first word: what it found the target to be."""

    shape: str
    abilities: list[str]
    traits: list[str]
    retention_s: float | None = None
    is_async: bool = False
    """Its methods are coroutines."""
    expected_errors: list[str] = []
    """Names of errors that the target declares as answers."""
    keeps_last: int | None = None
    """How many messages of a session it says that it keeps."""
    settings: list[dict[str, str]] = []
    """What its connections to the engine are really set to, as far as they can be asked."""


class Broken(msgspec.Struct, tag="broken"):
    """The worker's first word, if the target cannot be used at all."""

    reason: str


class AtLine(msgspec.Struct, tag="at-line"):
    """The worker stands on the line it was told to stop at, and waits for the runner's next request."""

    line: str


Reply = Elements | Acked | Parts | FoundBy | Lines | Failed | Ready | Broken | AtLine

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Word).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
