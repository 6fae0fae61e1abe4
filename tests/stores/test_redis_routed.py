"""Several servers: what is cancelled or closed halfway leaves no connection behind, and no call without an answer."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from recollect import EngineUnavailable, NotWritten, StoreClosed
from recollect.store import Options
from recollect.stores.redis import markers, routed
from recollect.stores.redis import shard as shard_module
from recollect.stores.redis.address import parse_address
from recollect.stores.redis.cluster import ClusterServers
from recollect.stores.redis.commit import QueuedWrite
from recollect.stores.redis.routed import RoutedServers, Scouts
from recollect.stores.redis.script import APPEND
from recollect.stores.redis.servers import OneIdentity
from recollect.stores.redis.settings import QUESTIONS_COUNT
from recollect.stores.redis.shard import Guard, Shard
from recollect.stores.redis.slots import Node
from recollect.stores.redis.wire import Reply, Wire, WireLost

ADDRESS = parse_address("redis+cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")


class FakeWire:
    """A connection that answers at once and counts as closed only when it is told so."""

    is_usable = True

    def __init__(self) -> None:
        self.aborted = False
        self.ended = asyncio.Event()

    def abort(self) -> None:
        self.aborted = True

    async def replies(self, request: bytes, count: int) -> list[Reply]:
        return [b"answer"] * count


async def test_a_connection_made_as_its_caller_is_cancelled_is_closed() -> None:
    shard = Shard(
        ADDRESS.at(ADDRESS.nodes[0]), Options(), lambda: OneIdentity(ADDRESS), planned=lambda shard: None
    )
    wire = FakeWire()

    async def connected() -> Wire:
        # After the connection, before its caller is told.
        asyncio.get_running_loop().call_soon(opening.cancel)
        return cast(Wire, wire)

    shard._connect_now = connected  # type: ignore[method-assign]
    opening = asyncio.create_task(shard.open())
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert wire.aborted


async def test_a_scout_that_returns_to_a_closed_store_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    wire, connecting = FakeWire(), asyncio.Event()

    async def connect(*_: object) -> FakeWire:
        await connecting.wait()
        return wire

    monkeypatch.setattr(routed, "connect", connect)
    scouts, node = Scouts(1.0), ADDRESS.nodes[0]
    asking = asyncio.create_task(scouts.ask(node, ADDRESS.at(node), b""))
    await asyncio.sleep(0)
    await scouts.close()
    connecting.set()
    assert await asking == b"answer"
    assert wire.aborted


async def test_scouts_are_closed_while_one_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    wires: list[FakeWire] = []

    async def connect(*_: object) -> FakeWire:
        wires.append(FakeWire())
        return wires[-1]

    monkeypatch.setattr(routed, "connect", connect)
    scouts = Scouts(1.0)
    for node in ADDRESS.nodes[:2]:
        await scouts.ask(node, ADDRESS.at(node), b"")
    closing = asyncio.create_task(scouts.close())
    await asyncio.sleep(0)  # it waits for the first connection to end
    await scouts.ask(ADDRESS.nodes[2], ADDRESS.at(ADDRESS.nodes[2]), b"")
    for wire in wires:
        wire.ended.set()
    await closing
    assert all(wire.aborted for wire in wires)


class NobodyServes(RoutedServers):
    """Asks who serves for as long as anybody lets it."""

    asked = 0

    def _owner(self, slot: int) -> Node | None:
        return None

    def _moved(self, slot: int, node: Node) -> None:
        raise NotImplementedError

    async def _learn(self) -> None:
        self.asked += 1
        await asyncio.Event().wait()

    def _serving(self) -> list[Node]:
        return []

    def _guard(self, node: Node) -> Guard:
        return OneIdentity(self._address)

    def scan(self, kind: str, start: bytes) -> AsyncIterator[list[bytes]]:
        raise NotImplementedError


async def test_closing_answers_the_calls_that_look_for_a_server() -> None:
    servers = NobodyServes(ADDRESS, Options(timeout_s=3600.0))
    writing = asyncio.create_task(servers.submit(QueuedWrite(APPEND, (b"",), b"", 0), 0))
    reading = asyncio.create_task(servers.ask(0, b"", 1))
    async with asyncio.timeout(60):
        while not servers.asked:
            await asyncio.sleep(0.01)
        await servers.close()
        results = await asyncio.gather(writing, reading, return_exceptions=True)
    assert isinstance(results[0], NotWritten), results
    assert "nobody is known to serve" in str(results[1]), results
    with pytest.raises(StoreClosed):
        servers._shard(ADDRESS.nodes[0])


async def test_nobody_waits_for_an_answer_beyond_the_time_limit() -> None:
    servers = NobodyServes(ADDRESS, Options(timeout_s=0.1))
    async with asyncio.timeout(20):
        results = await asyncio.gather(
            servers.submit(QueuedWrite(APPEND, (b"",), b"", 0), 0),
            servers.ask(0, b"", 1),
            return_exceptions=True,
        )
        await servers.close()
    assert isinstance(results[0], NotWritten), results
    assert isinstance(results[1], EngineUnavailable), results


async def test_a_call_may_look_for_a_server_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    class Knows(NobodyServes):
        async def _learn(self) -> None:
            self.asked += 1

    monkeypatch.setattr(routed, "RETRY_MAX_S", 0.0)
    servers = Knows(ADDRESS, Options(timeout_s=3600.0))
    writing = asyncio.create_task(servers.submit(QueuedWrite(APPEND, (b"",), b"", 0), 0))
    async with asyncio.timeout(60):
        while servers.asked < 1_100 and not writing.done():
            await asyncio.sleep(0.01)
        await servers.close()
        with pytest.raises(NotWritten, match="nobody is known to serve"):
            await writing


class SilentWire(FakeWire):
    closed = False

    def abort(self) -> None:
        self.closed = True
        self.ended.set()

    async def replies(self, request: bytes, count: int) -> list[Reply]:
        await self.ended.wait()
        raise WireLost("the engine closed the connection")


async def test_a_read_under_way_when_its_store_is_closed_does_not_blame_the_engine() -> None:
    shard = Shard(
        ADDRESS.at(ADDRESS.nodes[0]), Options(), lambda: OneIdentity(ADDRESS), planned=lambda shard: None
    )
    shard.pool.adopt(cast(Wire, SilentWire()))
    reading = asyncio.create_task(shard.ask(b"", 1, attempts=1))
    await asyncio.sleep(0)
    await shard.close()
    with pytest.raises(StoreClosed):
        await reading


class SlowWire(FakeWire):
    """A primary without an AOF that has all markers, and answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answering = asyncio.Event(), asyncio.Event()

    async def replies(self, request: bytes, count: int) -> list[Reply]:
        self.asked.set()
        await self.answering.wait()
        config: list[Reply] = [[]] * (QUESTIONS_COUNT - 1)
        return [b"role:master\r\n", *config, *[markers.sealed("me").encode()] * (count - QUESTIONS_COUNT)]


async def test_connections_made_while_slots_change_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is judged by the markers that it was asked for, not by those of another one."""
    node = ADDRESS.nodes[0]
    servers = ClusterServers(ADDRESS, Options())
    servers._identity = "me"
    wires = [SlowWire(), SlowWire()]
    made = iter(wires)

    async def connect(*_: object) -> SlowWire:
        return next(made)

    monkeypatch.setattr(shard_module, "connect", connect)
    shard = servers._shard(node)
    opening = [asyncio.create_task(shard.open())]
    async with asyncio.timeout(60):
        await wires[0].asked.wait()
        servers._moved(markers.slots()[0], node)
        opening.append(asyncio.create_task(shard.open()))
        await wires[1].asked.wait()
        for wire in wires:
            wire.answering.set()
        await asyncio.gather(*opening)
