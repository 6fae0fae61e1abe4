"""The doctor on a cluster, and on a primary with sentinels: what the servers would lose together."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator

import pytest

from recollect import CannotOpen, EngineUnavailable
from recollect.doctor import Symptom, examine
from recollect.verify import engines
from recollect.verify.engines.redis_cluster import ClusterNode, RedisClusterEngine
from recollect.verify.engines.redis_sentinel import RedisSentinelEngine
from recollect.verify.host.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisClusterEngine]:
    engine = engines.create("redis-cluster", "aof-always")
    assert isinstance(engine, RedisClusterEngine)
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def sentinel() -> Iterator[RedisSentinelEngine]:
    engine = engines.create("redis-sentinel", "aof-always")
    assert isinstance(engine, RedisSentinelEngine)
    engine.start()
    yield engine
    engine.close()


async def findings(url: str) -> dict[str, Symptom]:
    return {symptom.name: symptom for symptom in (await examine(url)).findings}


async def test_a_cluster_with_copies_and_files_loses_only_what_a_failover_takes(
    cluster: RedisClusterEngine,
) -> None:
    found = await examine(cluster.endpoint.url)
    assert (found.engine, found.policy, found.settings["primaries"]) == ("redis-cluster", "aof-always", "3")
    assert [symptom.name for symptom in found.findings if symptom.level == "loss"] == ["failover"]
    assert found.findings[0].window_s == 1.0
    assert "replicas=1" in found.findings[0].procedure[0]
    assert str(cluster.endpoint.password) not in str(found)


async def test_one_server_without_a_file_is_named(cluster: RedisClusterEngine) -> None:
    primary = cluster.primaries()[0]
    [replica] = cluster.replicas_of(primary)
    for server, level in ((replica, "note"), (primary, "loss")):
        server.ask("CONFIG", "SET", "appendonly", "no")
        found = await findings(cluster.endpoint.url)
        assert found["no-persistence"].level == level
        assert f":{server.port}" in found["no-persistence"].setting
        assert ("restarts-empty" in found) == (server is primary)
    for server in (replica, primary):
        server.ask("CONFIG", "SET", "appendonly", "yes")


async def test_a_bound_of_every_primary_is_the_window(cluster: RedisClusterEngine) -> None:
    for server in cluster.servers:
        server.ask("CONFIG", "SET", "min-replicas-to-write", "1")
    assert (await findings(cluster.endpoint.url))["failover"].window_s == 10.0
    cluster.servers[0].ask("CONFIG", "SET", "min-replicas-to-write", "0")
    assert (await findings(cluster.endpoint.url))["failover"].window_s == 1.0


async def test_a_node_that_hangs_holds_nobody_up_and_is_named(cluster: RedisClusterEngine) -> None:
    hanging = cluster.servers[0]  # the first that the address names

    def set_node_timeout(milliseconds: int) -> None:
        for server in cluster.servers:
            server.ask("CONFIG", "SET", "cluster-node-timeout", str(milliseconds))

    def is_heard(asked: ClusterNode) -> bool:
        return all(line[4] == "0" for line in cluster.view(asked) if line[0] == hanging.id)

    set_node_timeout(600_000)  # nobody takes over
    hanging.pause()
    try:
        async with asyncio.timeout(60):
            found = (await examine(cluster.endpoint.url, timeout_s=1000)).findings
    finally:
        hanging.resume()
    silent = {symptom.name: symptom for symptom in found}["servers-that-do-not-answer"]
    assert silent.sentence.endswith(f"lose: redis://127.0.0.1:{hanging.port}: no answer within 2 s")
    for asked in cluster.servers:
        wait_until(functools.partial(is_heard, asked), 30, "it is not heard again")
    set_node_timeout(1_000)


async def test_a_shard_that_is_gone_leaves_slots_without_an_owner(cluster: RedisClusterEngine) -> None:
    primary, other, _ = cluster.primaries()
    [replica] = cluster.replicas_of(primary)
    replica.kill()
    wait_until(lambda: not cluster.replicas_of(primary) or _is_down(cluster, replica.id), 30, "not noticed")
    found = await findings(cluster.endpoint.url)
    assert f":{primary.port}" in found["no-replica"].setting
    primary.kill()
    wait_until(lambda: other.info("cluster")["cluster_state"] == "fail", 30, "the cluster went on")
    found = await findings(cluster.endpoint.url)
    assert found["slots-without-owner"].setting.startswith("10,923 of 16,384")
    cluster.kill()
    with pytest.raises(EngineUnavailable):
        await examine(cluster.endpoint.url)


def _is_down(cluster: RedisClusterEngine, node: str) -> bool:
    """As every node that answers sees it."""
    return all(
        "fail" in line[2] for asked in cluster.others() for line in cluster.view(asked) if line[0] == node
    )


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_nobody_answers_and_the_password_stays_where_it_is(kind: str) -> None:
    service = "/memory" if kind == "sentinel" else ""
    with pytest.raises(EngineUnavailable) as told:
        await examine(f"redis+{kind}://app:hunter2-unseen@127.0.0.1:1,127.0.0.1:2{service}")
    assert "hunter2-unseen" not in str(told.value)


async def test_a_primary_and_a_sentinel_that_hang_are_named_soon(sentinel: RedisSentinelEngine) -> None:
    primary, hanging = sentinel.primary(), sentinel.sentinels[0]  # the first that the address names
    for one in sentinel.sentinels:
        one.ask("SENTINEL", "SET", "memory", "down-after-milliseconds", "600000")  # nobody takes over
    for server in (primary, hanging):
        server.pause()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(EngineUnavailable) as told:
                await examine(sentinel.endpoint.url, timeout_s=1000)
            primary.resume()
            found = (await examine(sentinel.endpoint.url, timeout_s=1000)).findings
    finally:
        for server in (primary, hanging):
            server.resume()
    assert f"no primary answers (redis://127.0.0.1:{hanging.port}: no answer within 2 s; " in str(told.value)
    assert f"redis://127.0.0.1:{primary.port}: no answer within 2 s)" in str(told.value)
    silent = {symptom.name: symptom for symptom in found}["servers-that-do-not-answer"]
    assert silent.sentence.endswith(f"lose: redis://127.0.0.1:{hanging.port}: no answer within 2 s")


async def test_sentinels_that_cannot_agree(sentinel: RedisSentinelEngine) -> None:
    found = await findings(sentinel.endpoint.url)
    assert [name for name, symptom in found.items() if symptom.level != "note"] == ["failover"]
    assert "replicas=2" in found["failover"].procedure[0]
    assert "no-quorum" not in found
    with pytest.raises(CannotOpen, match="name the service as the sentinels call it"):
        await examine(sentinel.endpoint.url.replace("/memory", "/others"))
    for one in sentinel.sentinels[:2]:
        one.kill()
    found = await findings(sentinel.endpoint.url)
    assert found["no-quorum"].sentence.endswith("1 of 3 sentinels answer, and 2 have to agree")
    assert found["servers-that-do-not-answer"].level == "cannot-tell"
