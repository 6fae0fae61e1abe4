"""A bounded pool of asyncpg connections.

asyncpg's own pool spends a round trip on resetting each returned connection, and a task on each release; here
nothing needs resetting, because every statement is its own transaction.

An engine that was restarted leaves dead connections behind. They must be found *before* a write is sent, because
afterwards nobody knows whether it arrived. So before a connection that was idle for a moment is used, the event loop
gets to read from its socket, where the end of a closed connection shows up.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from recollect.errors import EngineUnavailable, RecollectError, StoreClosed
from recollect.owner import Owner
from recollect.stores.postgres.errors import read_error
from recollect.stores.postgres.hosts import Connection, connect_newest, connect_standby, remaining_s

IDLE_TRUSTED_S = 0.005
"""A connection used this recently is not checked."""

CLOSE_TIMEOUT_S = 2.0

READ_BYTES_MAX = 64 * 1024
"""Read from a socket at once. asyncio would make room for 256 KiB each time, which may have to come from the kernel and
go back there: that took a fifth of the time of reading a hundred messages."""


class PostgresPoolExhausted(EngineUnavailable):
    """Every connection was busy for the whole wait."""


class PostgresPool:
    """At most `size` connections, opened when needed. `prepare` sees each new connection before its first use.

    They lead to the primary. Once a newer primary is found (`timeline`), connections to an older one are closed. With
    `standby` they lead to a standby instead.
    """

    def __init__(
        self,
        url: str,
        size: int,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
        *,
        timeline: int = 0,
        standby: bool = False,
    ) -> None:
        self._url = url
        self._timeline = timeline
        self._timelines: dict[Connection, int] = {}
        self._standby = standby
        self._size = size
        self._prepare = prepare
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: list[tuple[Connection, float]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._owner = Owner()

    def take(self) -> Connection | None:
        """A connection that was in use a moment ago, if there is one. Never waits."""
        self._owner.check()
        if self._idle and self._taken < self._size:
            connection, released_at = self._idle[-1]
            if time.monotonic() - released_at < IDLE_TRUSTED_S and not connection.is_closed():
                self._idle.pop()
                self._taken += 1
                return connection
        return None

    async def acquire(self, deadline: float) -> Connection:
        """A connection that was alive a moment ago; `EngineUnavailable` if there is none by the deadline."""
        if self._closed:
            raise StoreClosed
        if self._taken < self._size:
            self._taken += 1
        else:
            await self._wait(remaining_s(deadline))
        try:
            return await self._living() or await self._connect(deadline)
        except BaseException:
            self._give_back()
            raise

    def release(self, connection: Connection) -> None:
        if connection.is_closed() or self._closed or self.is_outdated(connection):
            self._end(connection)
        else:
            self._idle.append((connection, time.monotonic()))
        self._give_back()

    def discard(self, connection: Connection) -> None:
        """Closes a connection whose state is unknown; a statement still running on it is asked to stop."""
        self._end(connection)
        self._give_back()

    async def close(self) -> None:
        self._closed = True
        for connection, _ in self._idle:
            self._end(connection)
        self._idle.clear()
        while self._closing:
            await asyncio.wait(set(self._closing))

    async def _wait(self, timeout_s: float) -> None:
        """Waits until another caller hands over its place."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():  # handed over at the last moment
                self._give_back()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise PostgresPoolExhausted(
                f"all {self._size} connections of the pool (pool_size={self._size}) were busy for "
                f"{timeout_s:.3g} s; raise pool_size, or look for what holds them"
            ) from None

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its caller gave up
                turn.set_result(None)
                return
        self._taken -= 1

    async def _living(self) -> Connection | None:
        while self._idle:
            connection, released_at = self._idle.pop()
            if time.monotonic() - released_at > IDLE_TRUSTED_S:
                # The loop selects, reads the end of the stream, and tells the protocol: one turn each.
                for _ in range(4):
                    await asyncio.sleep(0)
            if not connection.is_closed():
                return connection
            self._end(connection)
        return None

    async def _connect(self, deadline: float) -> Connection:
        if self._standby:
            connection = await connect_standby(self._url, deadline)
        else:
            connected = await connect_newest(self._url, deadline, self._timeline)
            connection = connected.connection
            self._note(connection, connected.timeline or 0)
        transport: Any = getattr(connection, "_transport", None)
        if hasattr(transport, "max_size"):  # it is of asyncio's own loop, and not encrypted
            transport.max_size = READ_BYTES_MAX
        try:
            if self._prepare is not None:
                async with asyncio.timeout(remaining_s(deadline)):
                    await self._prepare(connection)
        except BaseException as error:
            self._end(connection)
            if isinstance(error, RecollectError) or not isinstance(error, Exception):
                raise
            raise read_error(error) from error
        if self.is_outdated(connection):  # another caller has found a newer primary meanwhile
            self._end(connection)
            return await self._connect(deadline)
        return connection

    def _note(self, connection: Connection, timeline: int) -> None:
        self._timelines[connection] = timeline
        if timeline > self._timeline:
            self._timeline = timeline
            for idle, _ in self._idle:
                self._end(idle)
            self._idle.clear()

    def is_outdated(self, connection: Connection) -> bool:
        """Whether a newer primary than this one was found."""
        return self._timelines.get(connection, self._timeline) < self._timeline

    def _end(self, connection: Connection) -> None:
        self._timelines.pop(connection, None)
        if connection.is_closed():
            return
        task = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=CLOSE_TIMEOUT_S)
    except Exception:  # whatever goes wrong, the connection is closed
        connection.terminate()
