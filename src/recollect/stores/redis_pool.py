"""A bounded set of wires, each lent to one batch or one read at a time."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from recollect.stores.redis_wire import Wire


class PoolExhausted(Exception):
    """All connections stayed in use for the whole time limit."""


class Pool:
    """Opens wires when they are needed, up to `size`. The one used last is used first."""

    def __init__(self, connect: Callable[[], Awaitable[Wire]], *, size: int, timeout_s: float) -> None:
        self._connect = connect
        self._size = size
        self._timeout_s = timeout_s
        self._idle: list[Wire] = []
        self._lent: set[Wire] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> Wire | None:
        """An idle wire that the engine has not closed, if there is one. Never waits."""
        while self._idle:
            wire = self._idle.pop()
            if wire.is_usable:
                self._lent.add(wire)
                return wire
            wire.abort()
        return None

    async def wait(self) -> Wire:
        """A wire: an idle one, a new one, or the next that is given back; else `PoolExhausted`."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            if wire := self.take():
                return wire
            if len(self._lent) + self._opening < self._size:
                return await self._open()
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                async with asyncio.timeout_at(deadline):
                    await turn
            except TimeoutError:
                raise PoolExhausted(
                    f"waited {self._timeout_s:g} s for one of the pool's connections (pool_size={self._size}), "
                    "all of which are in use; the engine is slow, or pool_size is too small"
                ) from None
            finally:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                elif turn.cancelled():
                    self._wake()

    def adopt(self, wire: Wire) -> None:
        """Takes in a wire that was opened elsewhere, as idle."""
        self._idle.append(wire)

    def give_back(self, wire: Wire) -> None:
        self._lent.discard(wire)
        if not wire.closed:
            self._idle.append(wire)
        self._wake()

    async def close(self) -> None:
        wires = [*self._idle, *self._lent]
        self._idle.clear()
        for wire in wires:
            wire.abort()
        for wire in wires:
            await wire.ended.wait()

    async def _open(self) -> Wire:
        self._opening += 1
        try:
            wire = await self._connect()
        except BaseException:
            self._wake()
            raise
        finally:
            self._opening -= 1
        self._lent.add(wire)
        return wire

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
