"""A bounded pool of asyncpg connections.

asyncpg's own pool spends a round trip on resetting each returned connection, and a task on each release; here
nothing needs resetting, because every statement is a transaction of its own.

An engine that was restarted leaves dead connections behind. They must be found *before* a write is sent, because
afterwards nobody knows whether it arrived. So a connection that was idle for a moment first lets the event loop read
what waits on its socket: the end of the connection, if it has ended.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from recollect.errors import (
    CannotOpen,
    CredentialsRefused,
    EngineUnavailable,
    RecollectError,
    StoreClosed,
)
from recollect.owner import Owner
from recollect.secret import check_address
from recollect.stores.postgres.errors import UNREACHABLE, read_error, short_reason

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

IDLE_TRUSTED_S = 0.005
"""A connection used this recently is taken as it is."""

STARTING_RETRY_S = 0.05
"""An engine that says it is starting up is asked again after this time."""

CLOSE_TIMEOUT_S = 2.0


class PostgresPoolExhausted(EngineUnavailable):
    """Every connection was busy for the whole time."""


class PostgresPool:
    """At most `size` connections, opened when needed. `prepare` sees each new connection before its first use."""

    def __init__(
        self,
        url: str,
        size: int,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self._url = url
        self._size = size
        self._prepare = prepare
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: list[tuple[Connection, float]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._owner = Owner()

    def take(self) -> Connection | None:
        """A connection that was in use a moment ago, if there is one: the quick way, without waiting."""
        self._owner.check()
        if self._idle and self._taken < self._size:
            connection, released_at = self._idle[-1]
            if time.monotonic() - released_at < IDLE_TRUSTED_S and not connection.is_closed():
                self._idle.pop()
                self._taken += 1
                return connection
        return None

    async def acquire(self, deadline: float) -> Connection:
        """A connection that was alive a moment ago, until the deadline; else `EngineUnavailable`."""
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
        if connection.is_closed() or self._closed:
            self._end(connection)
        else:
            self._idle.append((connection, time.monotonic()))
        self._give_back()

    def discard(self, connection: Connection) -> None:
        """Ends a connection whose state is not known; a statement that still runs on it is asked to stop."""
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
        """Until another caller hands its place over."""
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
        return None

    async def _connect(self, deadline: float) -> Connection:
        connection = await connect(self._url, deadline)
        try:
            if self._prepare is not None:
                async with asyncio.timeout(remaining_s(deadline)):
                    await self._prepare(connection)
        except BaseException as error:
            self._end(connection)
            if isinstance(error, RecollectError) or not isinstance(error, Exception):
                raise
            raise read_error(error) from error
        return connection

    def _end(self, connection: Connection) -> None:
        if connection.is_closed():
            return
        task = asyncio.get_running_loop().create_task(_close(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def connect(url: str, deadline: float) -> Connection:
    """A connection, or `EngineUnavailable` in the engine's words. One that is starting up is waited for."""
    check_address(url)
    while True:
        try:
            return await asyncpg.connect(url, timeout=remaining_s(deadline))
        except asyncpg.CannotConnectNowError as error:
            if remaining_s(deadline) < STARTING_RETRY_S:
                raise EngineUnavailable(f"PostgreSQL: {short_reason(error)}") from error
            await asyncio.sleep(STARTING_RETRY_S)
        except asyncpg.ProtocolViolationError as error:
            raise _unsupported(error) from error
        except asyncpg.InvalidAuthorizationSpecificationError as error:
            raise CredentialsRefused("PostgreSQL", short_reason(error)) from error
        except UNREACHABLE as error:
            raise EngineUnavailable(f"PostgreSQL: {short_reason(error)}") from error
        except ValueError as error:  # asyncpg's words for a malformed address quote parts of it
            raise CannotOpen(f"not an address that asyncpg can read ({type(error).__name__})") from None


def _unsupported(error: asyncpg.ProtocolViolationError) -> CannotOpen:
    """What a pooler says of an address with settings of the session in it."""
    reason = short_reason(error)
    setting = reason.removeprefix("unsupported startup parameter: ")
    if setting == reason:
        return EngineUnavailable(f"PostgreSQL: {reason}")
    return CannotOpen(
        f"PostgreSQL: {reason}; PgBouncer takes no {setting} from an address: leave it out there, and set it for the "
        f"role, ALTER ROLE … SET {setting} = …"
    )


def remaining_s(deadline: float) -> float:
    """Until a deadline of `time.monotonic`; never 0, which drivers take for "no limit"."""
    return max(deadline - time.monotonic(), 0.001)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=CLOSE_TIMEOUT_S)
    except Exception:  # whatever goes wrong, the connection ends
        connection.terminate()
