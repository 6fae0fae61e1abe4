"""Several servers that are one engine: what the endpoint says of them, and that all of them end."""

from __future__ import annotations

import pytest

from recollect.stores.redis.slots import slot_of
from recollect.verify import engines
from recollect.verify.engines import EngineOptions
from recollect.verify.engines.redis_cluster import SLOTS
from recollect.verify.host.waiting import wait_until
from tests.engines.conftest import Create


def test_a_cluster_has_its_nodes_in_the_endpoint(create: Create) -> None:
    engine = create("redis-cluster", "aof-always")
    endpoint = engine.start()
    assert len(endpoint.nodes) == 6
    assert all(node.rpartition("@")[2].removesuffix("/0") in endpoint.url for node in endpoint.nodes)
    assert endpoint.password not in repr(endpoint)
    assert engine.settings()["appendfsync"] == "always"
    primaries = engine.primaries()
    assert sum(len(engine.slots_of(node)) for node in primaries) == SLOTS
    assert [len(engine.replicas_of(node)) for node in primaries] == [1, 1, 1]
    primaries[0].kill()
    assert engine.alive()
    engine.kill()
    assert not engine.alive()


@pytest.mark.parametrize("spec", ["redis-cluster", "valkey-cluster"])
def test_a_cluster_may_have_two_replicas_of_each_primary(create: Create, spec: str) -> None:
    engine = create(spec, "none")
    engine.add_replicas()
    assert len(engine.start().nodes) == 9
    assert engine.primaries() == engine.servers[:3]
    for place, primary in enumerate(engine.servers[:3]):
        copies = {engine.servers[3 + place], engine.servers[6 + place]}
        assert {*engine.replicas_of(primary)} == copies
    followers = [primary.info("replication")["connected_slaves"] for primary in engine.primaries()]
    assert followers == ["2"] * 3, "it is ready when all follow"


@pytest.mark.parametrize("spec", ["redis-cluster", "valkey-cluster"])
def test_a_new_cluster_is_ready_in_the_eyes_of_every_node(create: Create, spec: str) -> None:
    """Its primaries began as replicas; nothing of that is left when it is ready."""
    engine = create(spec, "min-replicas-lag-1")
    engine.put_proxies_between()
    engine.start()
    assert engines.policies(spec)[engine.policy].read_back.items() <= engine.settings().items()
    for node in engine.servers:
        roles = {line[0]: (line[2].removeprefix("myself,"), line[3]) for line in engine.view(node)}
        for primary, replica in zip(engine.servers[:3], engine.servers[3:], strict=True):
            assert roles[primary.id] == ("master", "-")
            assert roles[replica.id] == ("slave", primary.id)
    assert len({line[6] for line in engine.view() if "master" in line[2]}) == 3, (
        "two primaries have one epoch"
    )
    for primary in engine.primaries():
        slots = set(engine.slots_of(primary))
        key = next(key for key in map(str, range(SLOTS)) if slot_of(key.encode()) in slots)
        assert primary.ask("SET", key, "taken") == "OK"
        assert primary.ask("WAIT", "1", "30000") == 1


def test_a_cluster_is_ready_when_its_old_primary_knows_who_took_over(create: Create) -> None:
    engine = create("redis-cluster", "none")
    engine.put_proxies_between()
    engine.start()
    old = engine.primaries()[0]
    [replica] = engine.replicas_of(old)
    engine.isolate(old)
    engine.ask_to_fail_over(replica, "takeover")
    engine.await_successor(old)
    assert not engine.is_ready()
    engine.heal()
    engine.await_ready(30)
    for node in engine.servers:
        assert old not in engine.primaries(node)


def test_a_standby_takes_over_and_the_others_follow(create: Create) -> None:
    """One standby has what the promoted one lacks: it cannot follow, and is copied anew, as the old primary is."""
    engine = create("postgres-ha", "any-1")
    endpoint = engine.start()
    assert len(endpoint.nodes) == 3
    assert endpoint.password not in repr(endpoint)
    assert engine.settings()["synchronous_standby_names"] == "ANY 1 (*)"
    old, (behind, ahead) = engine.primary(), engine.standbys()
    old.ask("CREATE TABLE said (what text)")
    behind.stream_from(None)
    old.ask("INSERT INTO said VALUES ('only one standby has it')")
    old.kill()
    assert engine.most_advanced() is ahead
    engine.promote(behind)
    engine.reunite()
    engine.await_ready(30)
    assert [server.is_standby for server in (behind, ahead, old)] == [False, True, True]
    behind.ask("INSERT INTO said VALUES ('all have it')")
    mark = behind.ask("SELECT pg_current_wal_lsn()")[0][0]
    reached = f"SELECT pg_last_wal_replay_lsn() >= '{mark}'"
    wait_until(
        lambda: [server.ask(reached) for server in (ahead, old)] == 2 * [[("t",)]], 30, "a copy is late"
    )
    assert [server.ask("SELECT * FROM said") for server in engine.servers] == 3 * [[("all have it",)]]


def test_an_old_primary_comes_back_as_one_until_it_is_told(create: Create) -> None:
    engine = create("postgres-ha", "asynchronous")
    engine.start()
    old, (first, second) = engine.primary(), engine.standbys()
    old.kill()
    engine.promote(first)
    engine.lead(second)
    engine.bring_back(old)
    assert (old.is_standby, first.is_standby, second.is_standby) == (False, False, True)
    assert engine.primary() is first
    engine.reunite()
    assert old.is_standby
    engine.kill()
    engine.start_one_by_one([second, old, first])
    assert engine.is_ready()


@pytest.mark.parametrize("spec", ["redis-cluster", "redis-sentinel", "postgres-ha"])
def test_what_no_group_can_be_given(spec: str) -> None:
    with pytest.raises(engines.EngineError, match="leave data and port out"):
        engines.create(spec, options=EngineOptions(port=7000))


@pytest.mark.parametrize("spec", ["redis-cluster", "redis-sentinel"])
def test_servers_that_are_too_old(spec: str) -> None:
    with pytest.raises(engines.EngineError, match="needs Redis 7 or newer"):
        engines.create(f"{spec}@6.2")
