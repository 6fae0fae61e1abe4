"""A bounded pool of asyncpg connections.

asyncpg's own pool spends a round trip on resetting each returned connection, and a task on each release; here
nothing needs resetting, because every statement is a transaction of its own.

An engine that was restarted leaves dead connections behind. They must be found *before* a write is sent, because
afterwards nobody knows whether it arrived. So a connection that was idle for a moment first lets the event loop read
what waits on its socket: the end of the connection, if it has ended.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from recollect.errors import EngineUnavailable, RecollectError
from recollect.stores.postgres_errors import UNREACHABLE, short_reason

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

IDLE_TRUSTED_S = 0.005
"""A connection used this recently is taken as it is."""

STARTING_RETRY_S = 0.05
"""An engine that says it is starting up is asked again after this time."""

CLOSE_TIMEOUT_S = 2.0


class PoolExhausted(EngineUnavailable):
    """Every connection was busy for the whole time."""


class Pool:
    """At most `size` connections, opened when needed. `prepare` sees each new connection before its first use."""

    def __init__(
        self,
        url: str,
        size: int,
        timeout_s: float,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self._url = url
        self._size = size
        self._timeout_s = timeout_s
        self._prepare = prepare
        self._slots = asyncio.Semaphore(size)
        self._idle: list[tuple[Connection, float]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def acquire(self) -> Connection:
        """A connection that was alive a moment ago, within the time limit; else `EngineUnavailable`."""
        if self._closed:
            raise EngineUnavailable("the store is closed")
        deadline = time.monotonic() + self._timeout_s
        if self._slots.locked():
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._slots.acquire()
            except TimeoutError:
                raise PoolExhausted(
                    f"all {self._size} connections of the pool (pool_size={self._size}) were busy for "
                    f"{self._timeout_s:g} s; raise pool_size, or look for what holds them"
                ) from None
        else:
            await self._slots.acquire()
        try:
            return await self._living() or await self._connect(deadline)
        except BaseException:
            self._slots.release()
            raise

    def release(self, connection: Connection) -> None:
        if connection.is_closed() or self._closed:
            self.discard(connection)
            return
        self._idle.append((connection, time.monotonic()))
        self._slots.release()

    def discard(self, connection: Connection) -> None:
        """Ends a connection whose state is not known; a statement that still runs on it is asked to stop."""
        self._end(connection)
        self._slots.release()

    async def close(self) -> None:
        self._closed = True
        for connection, _ in self._idle:
            self._end(connection)
        self._idle.clear()
        while self._closing:
            await asyncio.wait(set(self._closing))

    async def _living(self) -> Connection | None:
        while self._idle:
            connection, released_at = self._idle.pop()
            if time.monotonic() - released_at > IDLE_TRUSTED_S:
                # The loop selects, reads the end of the stream, and tells the protocol: one turn each.
                for _ in range(4):
                    await asyncio.sleep(0)
            if not connection.is_closed():
                return connection
        return None

    async def _connect(self, deadline: float) -> Connection:
        while True:
            try:
                connection = await connect(self._url, deadline - time.monotonic())
                break
            except asyncpg.CannotConnectNowError as error:
                if time.monotonic() + STARTING_RETRY_S > deadline:
                    raise EngineUnavailable(f"PostgreSQL: {short_reason(error)}") from error
                await asyncio.sleep(STARTING_RETRY_S)
        try:
            if self._prepare is not None:
                await self._prepare(connection)
        except BaseException as error:
            self._end(connection)
            if isinstance(error, UNREACHABLE):
                raise EngineUnavailable(f"PostgreSQL: {short_reason(error)}") from error
            raise
        return connection

    def _end(self, connection: Connection) -> None:
        if connection.is_closed():
            return
        task = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def connect(url: str, timeout_s: float) -> Connection:
    """A connection, or `EngineUnavailable` in the engine's words; `CannotConnectNowError` from one that is starting."""
    options: dict[str, Any] = {"timeout": max(timeout_s, 0.001)}
    try:
        return await asyncpg.connect(url, **options)
    except asyncpg.CannotConnectNowError:
        raise
    except UNREACHABLE as error:
        raise EngineUnavailable(f"PostgreSQL: {short_reason(error)}") from error
    except ValueError as error:  # asyncpg's words for a malformed address quote parts of it
        raise RecollectError(
            f"PostgreSQL: not an address asyncpg can read ({type(error).__name__})"
        ) from None


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=CLOSE_TIMEOUT_S)
    except Exception:  # whatever goes wrong, the connection ends
        connection.terminate()
