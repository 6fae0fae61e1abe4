"""The synchronous way to PostgreSQL: a connection of the pool, on loan to the threads that call (`recollect.near`).

Only for changes that may be repeated, and for reads: whatever is out of the ordinary (no connection, an error, somebody
else's turn) is left to the other way, through the pool's loop, which does it again and tells what is wrong.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from recollect.aside import aside
from recollect.errors import RecollectError
from recollect.near import NearTurns, NotHere
from recollect.stores.postgres.hosts import prepares
from recollect.stores.postgres.near_wire import PostgresWire, WireAnswer, WireRefused
from recollect.stores.postgres.pool import CLOSE_TIMEOUT_S, PostgresPool
from recollect.waiting import wait_for

POOL_LEAST = 3
"""A smaller pool lends nothing: the loop needs its connections."""


class NearPostgres:
    """For any thread, one at a time. Made on the pool's loop, where the wire is exchanged, too: a caller may be
    interrupted at any step, the loop is not."""

    def __init__(self, pool: PostgresPool, timeout_s: float) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._turns = NearTurns()
        self._wire: PostgresWire | None = None
        self._possible = True
        self._ending: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, pool: PostgresPool, url: str, size: int, timeout_s: float) -> "NearPostgres | None":
        """None where every call has to go through the loop."""
        return cls(pool, timeout_s) if size >= POOL_LEAST and prepares(url) else None

    def run(self, statement: str, values: Sequence[Any]) -> WireAnswer:
        """One statement, a transaction by itself. After `NotHere` it has done nothing; after an `OSError`, also
        `TimeoutError`, nobody knows."""
        turn = self._turns.begin() if self._possible else None
        if turn is None:
            raise NotHere
        try:
            deadline = time.monotonic() + self._timeout_s
            wire = self._living()
            try:
                return wire.run(statement, values, deadline)
            except WireRefused as error:
                raise NotHere from error
            except OSError:
                self._loop.call_soon_threadsafe(self._drop, wire)
                raise
        except RuntimeError as error:  # the loop has ended
            raise NotHere from error
        finally:
            turn.over = True

    async def close(self) -> None:
        """Waits for a call that is running, which may be waiting for this loop."""
        if await aside(self._turns.close, self._timeout_s) and self._wire is not None:
            self._drop(self._wire)
        while self._ending:
            await asyncio.wait(set(self._ending))

    def _living(self) -> PostgresWire:
        if not self._is_alive(self._wire):
            wait_for(self._exchange(), self._loop)
        wire = self._wire
        if wire is None:
            raise NotHere
        return wire

    def _is_alive(self, wire: PostgresWire | None) -> bool:
        return wire is not None and wire.is_usable and not self._pool.is_outdated(wire.connection)

    # ---- on the loop

    async def _exchange(self) -> None:
        """For a wire that works, if there is a connection for it."""
        if self._wire is not None:
            if self._is_alive(self._wire):
                return
            self._drop(self._wire)
        try:
            connection = await self._pool.acquire(time.monotonic() + self._timeout_s)
        except RecollectError:  # told on the other way
            return
        self._possible = PostgresWire.is_possible(connection)
        # Else that of a caller who was interrupted in waiting for it.
        if self._possible and self._wire is None:
            self._wire = PostgresWire(connection)
        else:
            self._pool.release(connection)

    def _drop(self, wire: PostgresWire) -> None:
        if self._wire is wire:
            self._wire = None
            task = self._loop.create_task(self._end(wire))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, wire: PostgresWire) -> None:
        if wire.is_asking:  # what was asked may still be running there, or be waiting for a lock
            connection: Any = wire.connection
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await connection._cancel(self._loop.create_future())
        wire.close()
        self._pool.discard(wire.connection)
