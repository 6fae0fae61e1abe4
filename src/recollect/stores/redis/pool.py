"""A bounded set of wires, each lent to one batch or one read at a time."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from recollect.errors import StoreClosed
from recollect.stores.redis.wire import Wire


class NoFreeConnection(Exception):
    """All connections stayed in use for the whole time limit."""


class RedisPool:
    """Opens wires when needed, up to `size`. The most recently used one is taken first."""

    def __init__(self, connect: Callable[[], Awaitable[Wire]], *, size: int, timeout_s: float) -> None:
        self._connect = connect
        self._size = size
        self._timeout_s = timeout_s
        self._idle: list[Wire] = []
        self._lent: set[Wire] = set()
        self._opening = 0
        self.is_closed = False
        self._waiting: deque[asyncio.Future[Wire | None]] = deque()

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
        """An idle wire, a new one, or the next to be given back, in order of arrival; else `NoFreeConnection`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while True:
            if self.is_closed:
                raise StoreClosed
            if wire := self.take():
                return wire
            if len(self._lent) + self._opening < self._size:
                return await self._open()
            place: asyncio.Future[Wire | None] = loop.create_future()
            self._waiting.append(place)
            try:
                async with asyncio.timeout_at(deadline):
                    wire = await place
            except BaseException as error:
                self._leave(place)
                if isinstance(error, TimeoutError):
                    raise NoFreeConnection(
                        f"waited {self._timeout_s:g} s for one of the pool's connections (pool_size={self._size}), "
                        "all of which are in use; the engine is slow, or pool_size is too small"
                    ) from None
                raise
            if wire is not None:
                return wire

    def _leave(self, place: "asyncio.Future[Wire | None]") -> None:
        """Ends a wait; a wire handed over at the same moment goes to the next in line."""
        if place in self._waiting:
            self._waiting.remove(place)
        elif not place.cancelled():
            wire = place.result()
            if wire is None:
                self._hand_over(None)
            else:
                self.give_back(wire)

    def adopt(self, wire: Wire) -> None:
        """Adds a wire that was opened elsewhere, as idle."""
        self._idle.append(wire)

    def give_back(self, wire: Wire) -> None:
        if self.is_closed:
            wire.abort()
        if wire.closed:
            self._lent.discard(wire)
            self._hand_over(None)
        elif not (self._waiting and self._hand_over(wire)):
            self._lent.discard(wire)
            self._idle.append(wire)

    def awaited(self) -> list[object]:
        """What the lent wires wait for: the same object for as long as one request is unanswered."""
        return [wire.awaited for wire in self._lent if wire.awaited is not None]

    def abort(self, awaited: set[object]) -> None:
        """Gives up the idle wires, and those that wait for one of these."""
        self.abort_idle()
        for wire in list(self._lent):
            if wire.awaited in awaited:
                wire.abort()

    def abort_idle(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    async def close(self) -> None:
        self.is_closed = True
        wires = [*self._idle, *self._lent]
        self._idle.clear()
        while self._hand_over(None):  # to each that waits, which then ends
            pass
        for wire in wires:
            wire.abort()
        for wire in wires:
            await wire.ended.wait()

    async def _open(self) -> Wire:
        self._opening += 1
        try:
            wire = await self._connect()
        except BaseException:
            self._hand_over(None)
            raise
        finally:
            self._opening -= 1
        self._lent.add(wire)
        return wire

    def _hand_over(self, wire: Wire | None) -> bool:
        """Gives the wire, or room for a new one, to whoever has waited longest, so that nobody starves."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(wire)
                return True
        return False
