"""What the runner asks a worker, and what comes back: one request, one reply, over a pipe."""

from typing import Literal

import msgspec

from recollect.verify.target.marked_text import Recognised
from recollect.verify.target.outcomes import Failure

How = Literal["record", "die", "stop", "step"]
Refresh = Literal["append", "read", "never", "message"]
"""What a declared retention counts from: a session's latest append or read, its first append, or each message."""


class Said(msgspec.Struct, array_like=True):
    """One message to write."""

    number: int
    text: str
    kind: str = ""
    """A kind from `contents`; number and kind then determine the whole message."""


class AppendMessages(msgspec.Struct, tag="append"):
    """Appends these as one turn."""

    session: str
    said: list[Said]
    turn: str | None = None
    expect: int | None = None
    beside: dict[str, list[Said]] = {}
    """What the same turn appends to other sessions."""


class Save(msgspec.Struct, tag="save"):
    """Writes back the list that the latest read returned, without its first `drop`, with these at the end."""

    session: str
    said: list[Said]
    drop: int = 0


class Replace(msgspec.Struct, tag="replace"):
    """Replaces everything with these, if the session is still at this position."""

    session: str
    said: list[Said]
    turn: str | None = None
    expect: int | None = None


class Retract(msgspec.Struct, tag="retract"):
    """Removes the elements at these places in the list that the latest read returned."""

    session: str
    places: list[int]
    turn: str | None = None
    expect: int | None = None


class MakeCopy(msgspec.Struct, tag="fork"):
    """Copies the session into a new one, if it is still at this position."""

    session: str
    new: str
    turn: str | None = None
    expect: int | None = None


class Read(msgspec.Struct, tag="read"):
    """Reads the session: all of it, its last n, or what comes after one of the store's own sequences.

    With `positioned`, the position is asked for first, so what is read is no older than that."""

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
    """Asks the index for everything in the session, and lists its rows."""

    session: str


class Watch(msgspec.Struct, tag="watch"):
    """Follows the lines of the store's own code: records them all, dies or stops at one of them, or stops at each."""

    how: How
    line: str = ""
    """``file.py:17``, as in a recording."""


class GiveUp(msgspec.Struct, tag="give-up"):
    """The caller gives the next request up after this share of the time it usually takes. No reply."""

    share: float


class HoldTables(msgspec.Struct, tag="hold-tables"):
    """Another connection in the worker's process keeps the tables of the SQLite file until then, by the machine's
    monotonic clock. No reply."""

    until: float


class WriteAndTell(msgspec.Struct, tag="write-and-tell"):
    """Writes this to a new session, and tells what the connections that it takes are set to."""

    said: Said


class Close(msgspec.Struct, tag="close"):
    """Closes the store and ends the worker."""


Request = (
    AppendMessages
    | Save
    | Replace
    | Retract
    | MakeCopy
    | Read
    | ReadContext
    | Forget
    | SearchIndex
    | Watch
    | Close
)
Word = Request | GiveUp | HoldTables | WriteAndTell
"""A request, or something that is sent ahead of one."""


class Elements(msgspec.Struct, tag="elements"):
    """What a read returned: message numbers, with -1 for the next of `odd`."""

    numbers: list[int]
    odd: list[Recognised] = []
    """The elements that are not simply a known message, unchanged."""
    sequence: int | None = None
    """The sequence of the last element, if the store has sequences."""
    position: int | None = None
    """The session's position before it was read, if that was asked for."""


class Acked(msgspec.Struct, tag="acked"):
    """It is done; with what the store's receipt says, if there is one."""

    sequence: int | None = None
    durability: str | None = None
    replicas: int = 0


class Parts(msgspec.Struct, tag="parts"):
    """What each statement of a context read returned."""

    parts: list[Elements]


class FoundBy(msgspec.Struct, tag="found"):
    """The messages listed as rows, and those that the index found."""

    listed: list[int]
    found: list[int]


class ToldSettings(msgspec.Struct, tag="settings"):
    """The real settings of the connections that a write took."""

    settings: list[dict[str, str]]


class Lines(msgspec.Struct, tag="lines"):
    """A watched write is done; it executed these lines of the store's code."""

    lines: list[str]


class Failed(msgspec.Struct, tag="failed"):
    """The store raised; see `outcomes` for what that means."""

    outcome: Failure
    error: str
    kinds: list[str] = []
    """Names of the error's class and its bases."""
    given_up: bool = False
    """The caller gave up before it ended."""


class Ready(msgspec.Struct, tag="ready"):
    """The worker's first message: what it learned about the target."""

    shape: str
    abilities: list[str]
    traits: list[str]
    retention_s: float | None = None
    is_async: bool = False
    """Its methods are coroutines."""
    expected_errors: list[str] = []
    """Names of errors that the target declares as answers."""
    keeps_last: int | None = None
    """How many messages of a session it says it keeps."""
    settings: list[dict[str, str]] = []
    """The real settings of its connections to the engine, as far as they can be read."""
    release: str = ""
    """The distribution and version of a store that has a name."""
    refresh: Refresh = "append"
    loss_errors: list[str] = []
    """Names of errors with which its reads say that something is gone."""
    is_open: bool = False
    """It does not say in which form it takes messages: recollect's own, mappings or text."""


class Broken(msgspec.Struct, tag="broken"):
    """The worker's first message, if the target cannot be used at all."""

    reason: str


class AtLine(msgspec.Struct, tag="at-line"):
    """The worker has stopped at the line it was told to, and waits for the runner's next request."""

    line: str


Reply = Elements | Acked | Parts | FoundBy | Lines | ToldSettings | Failed | Ready | Broken | AtLine

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Word).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
