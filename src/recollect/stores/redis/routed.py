"""Several servers, of which one serves a session now and another may serve it later.

A write is sent to the server that is thought to own its slot, in that server's group commit. What a server says it has
not done (MOVED, ASK, TRYAGAIN, CLUSTERDOWN, …) and what was never sent is tried again for as long as the call's time
limit allows. If a connection breaks during a write, the caller decides (`OutcomeUnknown`): nothing that may have been
done is repeated.

A server that hangs is not waited for once it has a successor: if one has not answered for half a second, all nodes are
asked who serves now.
"""

import asyncio
import contextlib
import functools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from recollect.errors import (
    DurabilityUnavailable,
    EngineUnavailable,
    NotWritten,
    OutcomeUnknown,
    StoreClosed,
)
from recollect.store import Durability, Options
from recollect.stores.redis.address import Address
from recollect.stores.redis.commit import QueuedWrite
from recollect.stores.redis.errors import code_of
from recollect.stores.redis.servers import say_notice
from recollect.stores.redis.settings import DurabilityPlan
from recollect.stores.redis.shard import Guard, Shard
from recollect.stores.redis.slots import Node
from recollect.stores.redis.wire import Reply, ReplyError, Wire, connect, pack

RETRY_S = 0.01
RETRY_MAX_S = 0.1
DOUBLED_MAX = 8
"""How often the pause is doubled: a call with a long time limit tries thousands of times."""
HOPS_AT_ONCE = 3
"""Two nodes that each name the other are asked again only after a pause."""
LOOK_S = 0.5
SCOUT_TIMEOUT_S = 1.0

ELSEWHERE = frozenset({"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY"})
"""Replies of a server that has done nothing, and will not, or not yet."""
NOT_DONE = ELSEWHERE | {"NOREPLICAS"}


class Scouts:
    """One connection to each node, for asking who serves: never behind other requests."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._wires: dict[Node, Wire] = {}
        self._closed = False

    async def ask(self, node: Node, address: Address, request: bytes) -> Reply:
        """The reply; raises whatever stands in the way."""
        async with asyncio.timeout(self._timeout_s):
            wire = self._wires.pop(node, None)
            if wire is None or not wire.is_usable:
                if wire is not None:
                    wire.abort()
                wire = await connect(address.connection(), self._timeout_s)
            [reply] = await wire.replies(request, 1)
        if self._closed or self._wires.setdefault(node, wire) is not wire:  # or two asked at once
            wire.abort()
        return reply

    async def close(self) -> None:
        self._closed = True
        wires, self._wires = self._wires, {}
        for wire in wires.values():
            wire.abort()
        for wire in wires.values():
            await wire.ended.wait()


class RoutedServers(ABC):
    """What a cluster and sentinels have in common. Subclasses know who serves."""

    _joins = False
    """Whether one call may write to any of a server's sessions."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address = address
        self._options = options
        self._scouts = Scouts(min(SCOUT_TIMEOUT_S, options.timeout_s))
        self._shards: dict[Node, Shard] = {}
        self._learning: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._closed = False
        self._least: DurabilityPlan | None = None
        self._uneven = False
        """Primaries differ in what they give."""
        self._told: set[str | None] = set()
        self._loop = asyncio.get_running_loop()

    # ---- provided by subclasses

    @abstractmethod
    def _owner(self, slot: int) -> Node | None:
        """Who serves the slot, as far as is known."""

    @abstractmethod
    def _moved(self, slot: int, node: Node) -> None:
        """A server says that this one serves the slot."""

    @abstractmethod
    async def _learn(self) -> None:
        """Asks who serves; leaves things as they are if nobody answers."""

    @abstractmethod
    def _serving(self) -> list[Node]:
        """Every primary."""

    @abstractmethod
    def _guard(self, node: Node) -> Guard: ...

    # ---- Servers

    @property
    def plan(self) -> DurabilityPlan:
        assert self._least is not None
        return self._least

    @property
    def spans_slots(self) -> bool:
        return self._joins

    @property
    def replaced(self) -> str | None:
        return None  # a shard that was replaced refuses its own sessions; the others go on

    async def submit(self, write: QueuedWrite, slot: int) -> Reply:
        node = self._owner(slot)
        said: ReplyError | Exception = NotWritten("nobody is known to serve this session; safe to retry")
        write.sent_at = self._loop.time()
        write.deadline = write.sent_at + self._options.timeout_s
        if node is not None:
            try:
                reply = await self._shard(node).commit.submit(write)
            except (NotWritten, DurabilityUnavailable) as error:
                said = error
            except OutcomeUnknown:
                self._learn_soon()
                raise
            else:
                if not isinstance(reply, ReplyError):
                    return self._settled(write, node, reply)
                said = reply
        return await self._persist(write, slot, node, said, write.deadline)

    async def _persist(
        self,
        write: QueuedWrite,
        slot: int,
        node: Node | None,
        said: ReplyError | Exception,
        deadline: float,
    ) -> Reply:
        """Tries again what was not done, until the time is up."""
        hops = 0
        while True:
            if isinstance(said, ReplyError) and code_of(said) not in NOT_DONE:
                return said
            if self._loop.time() >= deadline:
                return _given_up(said)
            node, asking = await self._after(said, slot, node, hops, deadline - self._loop.time())
            if self._closed or self._loop.time() >= deadline:
                return _given_up(said)
            hops += 1
            if node is None:
                said = NotWritten("nobody is known to serve this session; safe to retry")
                continue
            shard = self._shard(node)
            try:
                if asking:
                    reply = await shard.write_asking(write, deadline)
                else:
                    reply = await shard.commit.resubmit(write, deadline)
            except (NotWritten, DurabilityUnavailable) as error:
                if self._loop.time() < deadline:  # else it says only that the time is up, not why
                    said = error
                continue
            except OutcomeUnknown:
                self._learn_soon()
                raise
            if not isinstance(reply, ReplyError):
                return self._settled(write, node, reply)
            said = reply

    def _settled(self, write: QueuedWrite, node: Node, reply: Reply) -> Reply:
        if write.shortfall is not None:
            self._shard(
                node
            ).look_again()  # if there are too few replicas now, the next write is not sent at all
        if self._uneven:
            write.plan = replace(write.plan, durability=self.plan.durability)
        return reply

    async def ask(self, slot: int, request: bytes, count: int, deadline: float | None = None) -> list[Reply]:
        end = time.monotonic() + self._options.timeout_s if deadline is None else deadline
        node, asking, hops = self._owner(slot), False, 0
        while True:
            said: ReplyError | Exception | None
            if node is None:
                said = EngineUnavailable(f"{self._address.shown}: nobody is known to serve this session")
            else:
                sent, wanted = (pack("ASKING") + request, count + 1) if asking else (request, count)
                try:
                    replies = (await self._shard(node).ask(sent, wanted, end, attempts=1))[-count:]
                except EngineUnavailable as error:
                    said = error
                else:
                    said = _elsewhere(replies)
                    if said is None or self._closed or time.monotonic() >= end:
                        return replies
            if self._closed or time.monotonic() >= end:
                assert isinstance(said, Exception)
                raise said
            node, asking = await self._after(said, slot, node, hops, end - time.monotonic())
            hops += 1

    async def ask_each(self, requests: Sequence[tuple[int, bytes]]) -> list[Reply]:
        by_node: dict[Node | None, list[int]] = {}
        for index, (slot, _) in enumerate(requests):
            by_node.setdefault(self._owner(slot), []).append(index)
        replies: list[Reply] = [None] * len(requests)

        async def ask_one(node: Node | None, indices: list[int]) -> None:
            found: list[Reply] | None = None
            if node is not None:
                with contextlib.suppress(EngineUnavailable):
                    together = b"".join(requests[index][1] for index in indices)
                    found = await self._shard(node).ask(together, len(indices), attempts=1)
            for place, index in enumerate(indices):
                reply = found[place] if found is not None else None
                if found is None or _elsewhere([reply]) is not None:
                    [reply] = await self.ask(*requests[index], 1)
                replies[index] = reply

        await together(*(ask_one(node, indices) for node, indices in by_node.items()))
        return replies

    async def check_rights(self) -> None:
        for node in self._serving():
            await self._shard(node).check_rights()

    async def close(self) -> None:
        """Calls that are still looking for a server end with the last one's answer."""
        self._closed = True
        for task in (self._learning, self._looking):
            if task is not None:
                task.cancel()
        for shard in self._shards.values():
            await shard.close()
        await self._scouts.close()

    @abstractmethod
    def scan(self, kind: str, start: bytes) -> AsyncIterator[list[bytes]]: ...

    # ---- who serves

    def _shard(self, node: Node) -> Shard:
        shard = self._shards.get(node)
        if shard is None:
            if self._closed:
                raise StoreClosed
            shard = self._shards[node] = Shard(
                self._address.at(node),
                self._options,
                functools.partial(self._guard, node),
                alone=False,
                joins=self._joins,
                planned=self._note_plan,
                confirm=self._confirming(node),
            )
        return shard

    def _confirming(self, node: Node) -> Callable[[], Awaitable[None]] | None:
        """What asks whether a server that was just connected to still serves; None: it says so itself."""
        return None

    def _note_plan(self, shard: Shard) -> None:
        self._reckon(self._serving())
        if shard.plan.notice not in self._told:
            self._told.add(shard.plan.notice)
            say_notice(self._address, shard.plan)

    def _reckon(self, serving: Sequence[Node]) -> None:
        """What every write gets at least. A server that no longer serves counts only while none that does is known."""
        planned = {node: shard.plan for node, shard in self._shards.items() if shard.is_planned}
        plans = [planned[node] for node in serving if node in planned] or list(planned.values())
        if plans:
            self._least = min(plans, key=lambda plan: list(Durability).index(plan.durability))
            self._uneven = len({plan.durability for plan in plans}) > 1

    async def _after(
        self, said: ReplyError | Exception | None, slot: int, node: Node | None, hops: int, left_s: float
    ) -> tuple[Node | None, bool]:
        """Whom to ask next, and whether to tell it that the slot is only on its way there; within `left_s`."""
        end = self._loop.time() + left_s
        if isinstance(said, ReplyError) and said.code in ("MOVED", "ASK"):
            host, _, port = said.text.split()[2].rpartition(":")
            there = (host or (node or ("", 0))[0], int(port))
            if said.code == "MOVED":
                self._moved(slot, there)
                self._learn_soon()
            if hops >= HOPS_AT_ONCE:
                await asyncio.sleep(RETRY_S)
            return there, said.code == "ASK"
        await asyncio.sleep(max(0.0, min(RETRY_MAX_S, RETRY_S * 2 ** min(hops, DOUBLED_MAX), left_s)))
        await self.learn(max(0.0, end - self._loop.time()))
        return self._owner(slot), False

    async def learn(self, left_s: float | None = None) -> None:
        """Asks who serves, and waits so long for the answer; one question at a time, for all who need it."""
        self._learn_soon()
        if self._learning is not None:  # not `shield`: closing ends the question, not those who wait
            await asyncio.wait([self._learning], timeout=left_s)

    def _learn_soon(self) -> None:
        if self._learning is None and not self._closed:
            self._learning = self._loop.create_task(self._learn_now())

    async def _learn_now(self) -> None:
        try:
            await self._learn()
            serving = self._serving()
            self._reckon(serving)
            for node, shard in list(self._shards.items()):
                if serving and node not in serving:
                    shard.pass_on()
        finally:
            self._learning = None

    def _watch(self) -> None:
        """From now on, servers that do not answer are noticed."""
        self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            slow = [
                shard.stuck() for shard in self._shards.values()
            ]  # every shard looks, whatever the others say
            if any(slow):
                await self.learn()


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Runs them side by side; the first error ends all, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


def _elsewhere(replies: list[Reply]) -> ReplyError | None:
    for reply in replies:
        if isinstance(reply, ReplyError) and code_of(reply) in ELSEWHERE:
            return reply
    return None


def _given_up(said: ReplyError | Exception) -> Reply:
    """The time is up: what the last server said. The store turns an error reply into an exception."""
    if isinstance(said, ReplyError):
        return said
    if isinstance(said, DurabilityUnavailable):
        raise NotWritten(f"{said}; safe to retry") from said
    raise said
