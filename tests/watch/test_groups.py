"""A watch beside a cluster, and beside a primary with sentinels: losses are told of the server that has them."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.audit.source import EngineFacts
from recollect.stores.redis.slots import SLOTS, slot_of
from recollect.verify import engines
from recollect.verify.wire.resp import fields_of
from recollect.watch.parts import PARTS, parts_of
from tests.stores.redis_places import new_prefix
from tests.watch.beside import ROUND_S, Beside, beside

DEADLINE_S = 60.0


@pytest.fixture
def cluster() -> Iterator[Any]:
    engine = engines.create("redis-cluster", "aof-everysec")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture
def sentinels() -> Iterator[Any]:
    engine = engines.create("redis-sentinel", "aof-everysec")
    engine.start()
    yield engine
    engine.close()


def heard(watched: Beside) -> list[EngineFacts]:
    facts = [watched.memory.facts(part.name) for part in watched.canary.parts]
    return [one for one in facts if one is not None]


async def heard_of_all(watched: Beside, cluster: Any) -> None:
    """Rounds without any alarm, until the canaries have heard of every primary."""
    primaries = {run_of(primary) for primary in cluster.primaries()}
    async with asyncio.timeout(DEADLINE_S):
        while {facts.run for facts in heard(watched)} != primaries:
            assert await watched.rounds(1) == []


def run_of(server: Any) -> str:
    return fields_of(server.ask("INFO", "server"))["run_id"]


def test_a_cluster_has_two_sessions_in_one_slot_of_each_part() -> None:
    parts = parts_of("redis+cluster://a:1?prefix=p", "canary")
    slots = [
        {slot_of(f"p:{{s{one.replace('/', '%2F')}}}:m".encode()) for one in part.sessions} for part in parts
    ]
    assert [len(found) for found in slots] == [1] * PARTS
    assert [found.pop() * PARTS // SLOTS for found in slots] == list(range(PARTS))
    assert len({session for part in parts for session in part.sessions}) == 2 * PARTS
    assert [part.name for part in parts_of("redis://a:1", "canary")] == [""]


async def test_one_emptied_shard_is_told_with_its_server(cluster: Any, tmp_path: Path) -> None:
    url = f"{cluster.endpoint.url}?prefix={new_prefix()}"
    async with beside(url, tmp_path / "memory.db") as watched:
        await heard_of_all(watched, cluster)
        emptied = cluster.primaries()[1]
        emptied.ask("FLUSHALL")
        [alarm] = await watched.told()
        assert (alarm.name, alarm.server) == ("wiped", f"127.0.0.1:{emptied.port}")
        assert alarm.sentence.startswith(f"127.0.0.1:{emptied.port}: ")
        assert alarm.lost > 0
        assert watched.events[-1]["server"] == alarm.server
        assert await watched.rounds(2) == []


async def test_a_failover_without_a_loss_is_no_alarm(cluster: Any, tmp_path: Path) -> None:
    url = f"{cluster.endpoint.url}?prefix={new_prefix()}"
    async with beside(url, tmp_path / "memory.db") as watched:
        old = cluster.primaries()[0]
        [replica] = cluster.replicas_of(old)
        cluster.ask_to_fail_over(replica)
        await asyncio.to_thread(cluster.await_successor, old)
        await watched.heard(3)
        [part, *_] = watched.canary.parts
        facts = watched.memory.facts(part.name)
        assert facts is not None
        assert facts.run == run_of(replica)


async def test_what_a_promoted_replica_lacks_is_lost_after_failover(tmp_path: Path) -> None:
    engine: Any = engines.create("redis-cluster", "aof-everysec")
    engine.put_proxies_between()
    engine.start()
    try:
        async with beside(f"{engine.endpoint.url}?prefix={new_prefix()}", tmp_path / "memory.db") as watched:
            await heard_of_all(watched, engine)
            old = engine.primaries()[0]
            part = watched.canary.parts[0].name
            [replica] = engine.replicas_of(old)
            started = time.time() - int(fields_of(replica.ask("INFO", "server"))["uptime_in_seconds"])
            while watched.memory.heard_at(part) < started + 3:
                assert await watched.rounds(1) == []
                await asyncio.sleep(ROUND_S)
            watched.canary.stale_s = 600.0
            engine.hold_back(old, replica)
            await watched.heard(3)
            old.kill()
            engine.lose(old)
            await asyncio.to_thread(engine.await_successor, old)
            [alarm] = await watched.told()
            assert (alarm.name, alarm.server) == ("lost-after-failover", f"127.0.0.1:{replica.seen}")
            assert alarm.lost >= 3
    finally:
        engine.close()


async def test_a_replica_that_is_late_is_named(cluster: Any, tmp_path: Path) -> None:
    url = f"{cluster.endpoint.url}?prefix={new_prefix()}"
    async with beside(url, tmp_path / "memory.db") as watched:
        [late] = cluster.replicas_of(cluster.primaries()[2])
        assert await watched.canary.look_at_replica() is None
        late.ask("CONFIG", "SET", "masterauth", "mistaken")
        cluster.primaries()[2].ask("CLIENT", "KILL", "TYPE", "replica")
        [alarm] = await watched.told()
        assert alarm.name == "stale-replica"
        assert f"the replica 127.0.0.1:{late.port} lacks" in alarm.sentence


async def test_behind_sentinels_the_primary_of_now_is_read(sentinels: Any, tmp_path: Path) -> None:
    url = f"{sentinels.endpoint.url}?prefix={new_prefix()}"
    async with beside(url, tmp_path / "memory.db") as watched:
        await watched.canary.look_at_settings()
        old = sentinels.primary()
        old.kill()
        await asyncio.to_thread(sentinels.await_successor, old)
        await watched.heard(3)
        facts = watched.memory.facts()
        assert facts is not None
        assert facts.run == run_of(sentinels.primary())
        sentinels.primary().ask("FLUSHALL")
        [alarm] = await watched.told()
        assert alarm.name == "wiped"
