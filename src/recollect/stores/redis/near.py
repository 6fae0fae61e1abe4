"""The synchronous way to one server: a wire of the pool, on loan to the threads that call (`recollect.near`).

`NearServer` has the methods of `Servers`, but waits on the socket itself. The store above it is the same code, and the
wire counts as one of the pool's connections. Whatever is out of the ordinary (no idle wire, a wire that broke, a
durability that has to be watched for) is left to the loop, which reconnects, checks and says what is wrong.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from recollect.batching import unacknowledged
from recollect.errors import EngineUnavailable, OutcomeUnknown
from recollect.near import Call, NearTurns, NotHere, Value, run_here
from recollect.near_socket import NearSocket
from recollect.store import Store
from recollect.stores.redis.commit import QueuedWrite
from recollect.stores.redis.servers import OneServer
from recollect.stores.redis.settings import DurabilityPlan
from recollect.stores.redis.wire import Replies, Reply, ReplyError, Wire, WireLost
from recollect.waiting import wait_for


class NearWire:
    """The socket of a wire that its loop no longer reads from."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._asking = False
        """Stays if a caller was interrupted: its replies are still to come."""
        self._socket = NearSocket(wire.lend())

    @property
    def is_usable(self) -> bool:
        return not self._asking and not self.wire.closed and self._socket.is_silent

    def ask(self, request: bytes, count: int, deadline: float) -> list[Reply]:
        """The replies; `WireLost` or `TimeoutError` if they do not come."""
        self._asking = True
        try:
            self._socket.send(request, deadline)
            parser = Replies()
            replies: list[Reply] = []
            while len(replies) < count:
                replies += parser.feed(self._socket.receive(deadline))
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            raise WireLost(str(error)) from error
        self._asking = False
        return replies

    def close(self) -> None:
        self._socket.close()


class NearServer:
    """`Servers` for a caller that waits. Only one thread at a time."""

    def __init__(self, far: OneServer, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._far = far
        self._loop = loop
        self._timeout_s = timeout_s
        self._wire: NearWire | None = None

    @property
    def plan(self) -> DurabilityPlan:
        return self._far.plan

    @property
    def spans_slots(self) -> bool:
        return self._far.spans_slots

    @property
    def replaced(self) -> str | None:
        return self._far.replaced

    def connect(self) -> None:
        """Takes a wire from the pool, unless it has one that works. `NotHere` if none is idle."""
        if self._wire is not None and self._wire.is_usable:
            return
        self.disconnect()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            wait_for(self._borrow(), self._loop)
        if self._wire is None:
            raise NotHere

    async def _borrow(self) -> None:
        # A caller who was interrupted while waiting for this may have left a wire here.
        if self._wire is None and (wire := self._far.shard.pool.take()) is not None:
            self._wire = NearWire(wire)

    def disconnect(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._give_back, wire.wire)

    def _give_back(self, wire: Wire) -> None:
        wire.abort()
        self._far.shard.pool.give_back(wire)

    async def submit(self, write: QueuedWrite, slot: int) -> Reply:
        plan = self.plan
        if self._wire is None or plan.watches or self._far.shard.commit.lacking is not None:
            raise NotHere
        if (observe := self._far.shard.commit.observe) is not None:
            observe(1, 0.0)
        write.sent_at = time.monotonic()
        deadline = write.sent_at + self._timeout_s
        try:
            reply, *waits = self._wire.ask(write.request() + plan.request, 1 + plan.count, deadline)
            if isinstance(reply, ReplyError) and reply.code == "NOSCRIPT":
                write.by_source = True
                reply, *waits = self._wire.ask(write.request() + plan.request, 1 + plan.count, deadline)
        except TimeoutError:
            raise unacknowledged(self._timeout_s) from None
        except WireLost as error:
            raise OutcomeUnknown(f"the connection broke before the reply came ({error})") from error
        write.plan, write.shortfall = plan, plan.shortfall(waits)
        return reply

    async def ask(self, slot: int, request: bytes, count: int, deadline: float | None = None) -> list[Reply]:
        if self._wire is None:
            raise NotHere
        try:
            return self._wire.ask(request, count, deadline or time.monotonic() + self._timeout_s)
        except TimeoutError as error:
            shown = self._far.shard.address.shown
            raise EngineUnavailable(f"{shown}: no answer within {self._timeout_s:g} s") from error
        except WireLost as error:
            raise NotHere from error

    async def ask_each(self, requests: Sequence[tuple[int, bytes]]) -> list[Reply]:
        return await self.ask(0, b"".join(request for _, request in requests), len(requests))

    async def open(self) -> str:
        raise NotHere

    def scan(self, kind: str, start: bytes) -> AsyncIterator[list[bytes]]:
        raise NotHere

    async def check_same(self, slot: int) -> None:
        raise NotHere

    async def check_all(self) -> None:
        raise NotHere

    async def check_rights(self) -> None:
        raise NotHere

    async def close(self) -> None:
        self.disconnect()


class RedisNear:
    """See `recollect.near.NearCalls`. `store` is a copy of the store, with a `NearServer`."""

    def __init__(self, store: Store, server: NearServer) -> None:
        self._store = store
        self._server = server
        self._turns = NearTurns()

    def run(self, call: Call[Value]) -> Value:
        turn = self._turns.begin()
        if turn is None:
            raise NotHere
        try:
            self._server.connect()
            return run_here(call(self._store))
        finally:
            turn.over = True

    def close(self, timeout_s: float) -> bool:
        ended = self._turns.close(timeout_s)
        if ended:
            self._server.disconnect()
        return ended
