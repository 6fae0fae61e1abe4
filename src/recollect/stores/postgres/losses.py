"""An engine that knows less of a session than it acknowledged to this store: a standby that lagged was promoted, or a
crash took what `synchronous_commit = off` had not written yet.

Every statement that changes a session compares the two (`schema`), and so does every read. The loss is logged once,
reads show it as a `Damaged` item, and the next change goes on after it, so that lost messages keep their sequences.
That change is a `Conflict` if it has an `expect`: others, who were told less, may have written since, below what is
known here.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from recollect.appending import session_of
from recollect.errors import StoreReplaced, shorten
from recollect.known import NOWHERE, Known, KnownSessions, Told
from recollect.stores.postgres import schema

log = logging.getLogger("recollect")

Read = Callable[..., Awaitable[list[asyncpg.Record]]]
WasErased = Callable[[bytes, Known, Told], Awaitable[bool]]
Write = Callable[[str, tuple[Any, ...], float], Awaitable[list[asyncpg.Record]]]


def tell(key: bytes, known: Known, found: int) -> None:
    if known.lost_told < known.last:
        known.lost_told = known.last
        log.error(
            "session %s: the engine lost acknowledged messages: it is at sequence %d, it was at %d. A standby was "
            "promoted that had not got them, or a crash took what was not on the disk",
            shorten(session_of(key)),
            found,
            known.last,
        )


def replaced(identity: str, found: str | None) -> StoreReplaced:
    return StoreReplaced(
        f"this is not the store that was opened ({identity}): {found or 'no store'} answers at its address. It was "
        "wiped, swapped or restored from nothing"
    )


async def go_on(
    read: Read,
    write: Write,
    was_erased: WasErased,
    sessions: KnownSessions,
    identity: str,
    keys: Sequence[bytes],
    deadline: float,
) -> set[bytes]:
    """Logs what the sessions have lost, and raises their counters to what this store was told. Returns which have. One
    that was erased has lost nothing."""
    keys, lost = sorted(set(keys)), dict[bytes, int]()
    rows = await read(schema.IDENTITY)
    if not rows or rows[0][0] != identity:
        raise replaced(identity, rows[0][0] if rows else None)
    known = [sessions.of(key) for key in keys]
    told = [one.told for one in known]
    for key, one, was, (found,) in zip(keys, known, told, await read(schema.POSITIONS, keys), strict=True):
        if found < was[0] and not await was_erased(key, one, was):
            tell(key, one, found)
            lost[key], _ = was
    if lost:
        await write(schema.GO_ON, (list(lost), list(lost.values())), deadline)
    return set(lost)


class Expected(int):
    """The position that a change expects, among the arguments of a statement."""


def refused(
    arguments: tuple[Any, ...], keys: Sequence[bytes], known: Sequence[Known], lost: set[bytes]
) -> tuple[Any, ...]:
    """The same arguments, with a position that no session has in place of one that is expected of a session that has
    lost messages. Lists of positions are as long as `keys`; a single one is of the first."""

    def compared(value: Any, key: bytes, one: Known) -> Any:
        return NOWHERE if isinstance(value, Expected) and (key in lost or one.doubts(value)) else value

    if not lost and all(one.lost_met == one.lost_told for one in known):
        return arguments
    return tuple(
        [compared(*each) for each in zip(value, keys, known, strict=True)]
        if isinstance(value, list) and any(isinstance(one, Expected) for one in value)
        else compared(value, keys[0], known[0])
        for value in arguments
    )
