"""An engine that knows less of a session than it acknowledged to this store: a standby that lagged was promoted, or a
crash took what `synchronous_commit = off` had not written yet.

Every statement that changes a session compares the two (`schema`), and so does every read. The loss is logged once,
reads show it as a `Damaged` item, and the next change goes on after it, so that lost messages keep their sequences.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from recollect.appending import session_of
from recollect.errors import StoreReplaced, shorten
from recollect.known import Known, KnownSessions
from recollect.stores.postgres import schema

log = logging.getLogger("recollect")

Read = Callable[..., Awaitable[list[asyncpg.Record]]]
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
    read: Read, write: Write, sessions: KnownSessions, identity: str, keys: Sequence[bytes], deadline: float
) -> None:
    """Logs what the sessions have lost, and raises their counters to what this store was told."""
    keys = sorted(set(keys))
    rows = await read(schema.IDENTITY)
    if not rows or rows[0][0] != identity:
        raise replaced(identity, rows[0][0] if rows else None)
    lasts = [sessions.of(key).last for key in keys]
    for key, last, (found,) in zip(keys, lasts, await read(schema.POSITIONS, keys), strict=True):
        if found < last:
            tell(key, sessions.of(key), found)
    await write(schema.GO_ON, (keys, lasts), deadline)
