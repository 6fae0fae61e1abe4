"""What a session has besides its messages, for the way from one store to another.

An engine assigns a session's sequences, and keeps its turn ids and its expiry to itself. A session that moves must
bring all of them: callers' cursors and positions stay right, a turn that is sent again after the move is not stored
twice, and what was to expire still does. `Movable` is implemented by every store of recollect and used by `transfer`;
it is not part of the contract, because `restore` takes records as they are.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from recollect.errors import Conflict
from recollect.message import encode
from recollect.store import Store, Stored
from recollect.tombstone import tombstone


class RememberedTurn(msgspec.Struct, frozen=True, array_like=True):
    """A turn id, where its messages are, and what it stands for."""

    turn: str
    first: int
    last: int
    fingerprint: bytes | None
    """None if a release without fingerprints wrote it."""


class SessionKept(msgspec.Struct, frozen=True):
    """What the engine keeps of a session."""

    expires: float | None
    """Epoch seconds; None if it lives for ever."""
    turns: list[RememberedTurn]
    """In the order of their sequences."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a session, with its sequences."""

    base: int
    """The session's position before; 0 if it must not exist."""
    floor: int
    """The first piece: up to here there are no messages."""
    rows: list[tuple[int, bytes]]
    """Sequences with their records, or with tombstones."""
    last: int
    """The session's position after."""
    marked: int
    """How many of the rows are tombstones."""
    created: float | None
    updated: float | None
    metadata: bytes | None = None
    kept: SessionKept | None = None
    """The last piece only."""

    def conflict(self, session: str, actual: int) -> Conflict:
        return Conflict(session, self.base, actual)


@runtime_checkable
class Movable(Store, Protocol):
    """A store whose sessions can be moved as they are."""

    async def kept(self, session: str) -> SessionKept:
        """What the engine keeps of a session that `describe` knows."""
        ...

    async def restore(self, session: str, piece: Piece) -> None:
        """Writes a piece at the end of the session, in one step; `Conflict` if the session is not at its base."""
        ...


def piece_of(
    base: int,
    stored: list[Stored],
    last: int,
    *,
    created: float | None,
    updated: float | None,
    metadata: bytes | None = None,
    kept: SessionKept | None = None,
    turns: Sequence[RememberedTurn] = (),
) -> Piece:
    """The next piece of a session that is at `base`, up to `last`: each gap without a message becomes one run. So does
    what is retracted at its beginning, from the first of these turns that has something left."""
    floor = base
    if base == 0:
        floor = stored[0].sequence - 1 if stored else last - 1
        floor = min((turn.first - 1 for turn in turns if turn.first <= floor < turn.last), default=floor)
    rows: list[tuple[int, bytes]] = []
    before, marked = floor, 0
    for item in stored:
        if item.sequence > before + 1:
            rows.append((item.sequence - 1, tombstone(before + 1)))
            marked += 1
        rows.append((item.sequence, encode(item.message)))  # type: ignore[arg-type]  # never a damaged one
        before = item.sequence
    if last > before:
        rows.append((last, tombstone(before + 1)))
        marked += 1
    return Piece(base, floor, rows, last, marked, created, updated, metadata, kept)
