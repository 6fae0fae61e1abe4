"""Rows: the truth of long-term memory, in SQLite or PostgreSQL.

Every write takes the next numbers of one ever-growing sequence, in commit order: a row gets a number when it is
written, and another when it is forgotten. So "everything after n" (`changes`) is complete, for every process and every
index, however late it asks. Forgetting empties the row and keeps its number, so that an index learns of it and a
retried turn does not bring it back.

Each row names the space (the embedder's generation) of its vector. A write names its space and is refused if the
memory has moved to another one: vectors of two embedders are never mixed.

A summary is made from a conversation that may be forgotten meanwhile. So the rows count how often a user was forgotten,
beside the cursors, and refuse a summary whose conversation was read before the last time.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from recollect.erasure import Unreached
from recollect.errors import RecollectError
from recollect.message import Damaged, Message, decode, encode
from recollect.recall.embedding import EmbedderChanged
from recollect.recall.memory import Memory
from recollect.store import Durability


class Space(msgspec.Struct, frozen=True):
    """Which embedder the vectors belong to."""

    number: int
    name: str
    dimension: int


class Draft(msgspec.Struct, frozen=True):
    """A memory to be written."""

    record: bytes
    vector: bytes


class Cursor(msgspec.Struct, frozen=True):
    """Compare-and-set on how far a conversation has been summarised."""

    conversation: bytes
    """A digest of the conversation's id."""
    expect: int
    through: int
    times_forgotten: int
    """How often the user had been forgotten before the conversation was read; compared too."""


class MemoryWrite(msgspec.Struct, frozen=True):
    """One commit: memories and the cursor they belong to, stored whole or not at all."""

    user: bytes
    drafts: Sequence[Draft]
    space: int
    turn: bytes | None = None
    """A digest; a retry with the same one stores nothing new."""
    fingerprint: bytes | None = None
    """A digest of the turn's messages; the same turn with another one is `OtherContent`."""
    cursor: Cursor | None = None


class Written(msgspec.Struct, frozen=True):
    sequences: list[int]
    durability: Durability
    repeated: bool = False
    """The turn was stored before; these are the numbers it got then."""


class Change(msgspec.Struct, frozen=True):
    """A row that was added (with `user` and `vector`) or forgotten (with neither), at a sequence number."""

    at: int
    sequence: int
    user: bytes | None
    vector: bytes | None


class Row(msgspec.Struct, frozen=True):
    sequence: int
    user: bytes
    record: bytes
    vector: bytes


class CursorMoved(RecollectError):
    """Another summariser was faster, or the user was forgotten meanwhile; nothing was written."""

    def __init__(self, expected: int, actual: int) -> None:
        what = f"is summarised up to {actual}, not {expected}" if actual != expected else "may be forgotten"
        super().__init__(f"the conversation {what}; nothing was written")
        self.expected, self.actual = expected, actual


class OtherContent(RecollectError):
    """The turn was stored before, with other content; nothing was written."""

    def __init__(self) -> None:
        super().__init__("the turn was stored before with other content; nothing was written")


def check_cursor(cursor: Cursor, through: int, times_forgotten: int) -> None:
    if (through, times_forgotten) != (cursor.expect, cursor.times_forgotten):
        raise CursorMoved(cursor.expect, through)


def forgotten_key(user: bytes) -> bytes:
    """Where, among the cursors, it is counted how often the user was forgotten. Conversations have shorter keys."""
    return b"forgotten " + user


def repeated(
    sequences: Sequence[int], known: bytes | None, write: MemoryWrite, durability: Durability
) -> Written:
    """The answer for a turn that is already stored. Turns older than fingerprints have none."""
    if known is not None and write.fingerprint is not None and known != write.fingerprint:
        raise OtherContent
    return Written(list(sequences), durability, repeated=True)


class Rows(Protocol):
    """What Recall needs from the rows. Implemented by `recollect.recall.rows_sqlite` and `rows_postgres`."""

    @property
    def identity(self) -> str: ...
    @property
    def durability(self) -> Durability: ...
    @property
    def notice(self) -> str | None: ...

    async def write(self, write: MemoryWrite) -> Written: ...
    async def settled(self) -> None:
        """Returns once what was written before is as durable as a write now would be; raises what that would raise. An
        earlier call may have ended before it was (`OutcomeUnknown`)."""
        ...

    async def forget(self, user: bytes, sequences: Sequence[int] | None) -> int:
        """Empties these memories of the user, or all of them, which counts as forgetting the user; returns how many
        there were."""
        ...

    async def erase(self) -> tuple[list[str], list[Unreached]]:
        """Makes the engine rewrite its files without what was forgotten; says which were rewritten, and which not."""
        ...

    async def probe(self) -> None:
        """A small write that changes no memory; raises what any write would raise now."""
        ...

    async def changes(self, after: int, limit: int) -> list[Change]:
        """What was added and forgotten after a number, in order; fewer than `limit` means that is all."""
        ...

    async def scan(self, user: bytes, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The user's vectors, in order of their numbers."""
        ...

    async def fetch(self, user: bytes, sequences: Sequence[int]) -> list[Row]:
        """Those of the rows that belong to the user and are not forgotten, in any order."""
        ...

    async def newest(self, user: bytes, before: int | None, limit: int) -> list[Row]: ...
    async def held(self, user: bytes, limit: int) -> int:
        """How many memories the user has, counted up to `limit`."""
        ...

    async def totals(self) -> tuple[int, int]:
        """The last number assigned, and how many rows are live, in one snapshot."""
        ...

    async def sample(self, points: Sequence[int]) -> list[Row]:
        """For each number, the first live row at or after it."""
        ...

    async def summarised(self, user: bytes, conversation: bytes) -> tuple[int, int]:
        """The last sequence of a conversation that has been summarised (0 if none), and how often its user has been
        forgotten: what a `Cursor` is compared with."""
        ...

    async def space(self, name: str, dimension: int) -> Space:
        """The memory's space; a new memory takes this one."""
        ...

    async def move(self, space: Space) -> None:
        """Moves the memory to another space; its rows follow through `restate`."""
        ...

    async def strays(self, space: int, limit: int) -> list[Row]:
        """Rows that are not in this space yet."""
        ...

    async def restate(self, vectors: Sequence[tuple[int, bytes]], space: int) -> None: ...
    async def close(self) -> None: ...


ROLE = "memory"


def record_of(text: str, created_at: float, session: str | None, message: str | None) -> bytes:
    """A memory as a record of the message codec: versioned, and able to hold any text on any engine."""
    details = {"session": session, "message": message}
    return encode(
        Message(ROLE, text, created_at, {name: value for name, value in details.items() if value is not None})
    )


def memory_of(sequence: int, record: bytes) -> Memory:
    message = decode(record)
    if isinstance(message, Damaged):
        return Memory(sequence, "", 0.0, damaged=message.reason)
    return Memory(
        sequence,
        message.text,
        message.timestamp,
        message.metadata.get("session"),
        message.metadata.get("message"),
    )


def moved_away(space: int, found: int) -> EmbedderChanged:
    return EmbedderChanged(
        f"the memory has moved to another embedder (generation {found}, this process has {space}); nothing was "
        "written: open it again with the new embedder"
    )
