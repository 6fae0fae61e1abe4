"""A cluster, a primary behind sentinels, or one with standbys, that somebody else runs: used, cleaned, never broken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.message import Message
from recollect.secret import SecretUrl
from recollect.verify import builtin, engines
from recollect.verify.host.waiting import wait_until
from recollect.verify.matrix.selection import BadRequest, VerifyRequest, engine_of, select
from recollect.verify.providers import url as addresses
from recollect.verify.providers.server_address import (
    hosts_of,
    named_primary,
    nodes_of,
    places_of,
    redis_address,
    sentinels_of,
)
from recollect.verify.wire import resp
from recollect.verify.wire.tls import TlsOptions
from tests.certificates import certified as certified
from tests.certificates import served
from tests.stores.redis_places import free_port

SESSIONS = 30
"""So many that every primary of a cluster gets some."""
CLUSTER = "redis+cluster://me:p%40ss@a:7000,[::1]:7001,c"
SENTINEL = "rediss+sentinel://me:p%40ss@s1,s2:26380/memory/3"
STANDBYS = "postgresql://me:p%40ss@a,b:5433/chats"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    engine = engines.create("redis-cluster", "none")
    engine.start()
    yield engine
    engine.close()


def keys_of(engine: Any) -> list[str]:
    return sorted(str(key) for primary in engine.primaries() for key in primary.ask("KEYS", "*"))


def write(target: str, endpoint: engines.Endpoint, sessions: int = 2) -> None:
    async def appended() -> None:
        store = await getattr(builtin, target)(endpoint)
        for number in range(sessions):
            await store.append(f"{endpoint.namespace} {number}", [Message("user", "hello")])
        await store.close()

    asyncio.run(appended())


def test_a_cluster_gets_its_keys_removed_from_every_primary_and_no_others(cluster: Any) -> None:
    attached = engines.attach(cluster.endpoint.url)
    endpoint = attached.start()
    assert not isinstance(attached, engines.Engine), "its type has no kill"
    assert (endpoint.engine, endpoint.provider, endpoint.version) == (
        "redis-cluster",
        "url",
        cluster.version,
    )
    assert {node.url for node in cluster.primaries()} <= set(endpoint.nodes)
    write("redis", endpoint, SESSIONS)
    attached.renew()
    assert all(primary.ask("DBSIZE") for primary in cluster.primaries())
    cluster.primaries()[1].ask("SET", theirs := key_on(cluster, 1), "precious")
    attached.stop()
    assert keys_of(cluster) == [theirs]
    with pytest.raises(engines.NotOurs, match="holds keys of others, and a cluster has one database only"):
        engines.attach(cluster.endpoint.url).start()
    shared = engines.attach(cluster.endpoint.url, allow_shared=True)
    shared.start()
    shared.stop()
    assert keys_of(cluster) == [theirs]
    cluster.primaries()[1].ask("DEL", theirs)


def key_on(cluster: Any, place: int) -> str:
    """A name that one of its primaries has the slot of."""
    slots = set(cluster.slots_of(cluster.primaries()[place]))
    asked = cluster.primaries()[0].ask
    return next(f"theirs-{n}" for n in range(1000) if asked("CLUSTER", "KEYSLOT", f"theirs-{n}") in slots)


def test_a_slot_that_is_open_is_cleaned_on_both_sides(cluster: Any) -> None:
    """Of its keys the moved ones are reached with ASK."""
    attached = engines.attach(cluster.endpoint.url)
    endpoint = attached.start()
    tag = key_on(cluster, 0)
    source, target = cluster.primaries()[:2]
    slot = source.ask("CLUSTER", "KEYSLOT", tag)
    for number in range(10):
        source.ask("SET", f"{endpoint.namespace}:{{{tag}}}:{number}", "ours")
    moving = cluster.move_slot(slot, source, target)
    for _ in range(5):
        next(moving)
    assert 0 < target.ask("CLUSTER", "COUNTKEYSINSLOT", str(slot)) < 10, "the slot must be open"
    attached.stop()
    for _ in moving:
        pass
    for _ in cluster.move_slot(slot, target, source):
        pass
    assert keys_of(cluster) == []


def test_a_node_of_a_cluster_is_not_taken_for_a_server(cluster: Any) -> None:
    node = cluster.primaries()[0].endpoint.url
    with pytest.raises(engines.EngineError, match=r"is a node of a cluster; give redis\+cluster://"):
        engines.attach(node).start()


def test_sentinels_are_asked_who_the_primary_is() -> None:
    engine: Any = engines.create("redis-sentinel", "none")
    try:
        url = engine.start().url
        attached = engines.attach(f"{url}/15")
        endpoint = attached.start()
        assert (endpoint.engine, endpoint.service, endpoint.port) == (
            "redis-sentinel",
            "memory",
            engine.primary().port,
        )
        assert len(endpoint.nodes) == 3
        write("redis", endpoint)
        assert "db15:keys=" in str(engine.primary().ask("INFO", "keyspace"))
        attached.stop()
        assert "db15" not in str(engine.primary().ask("INFO", "keyspace"))
        with pytest.raises(engines.EngineError, match="they know no service 'other'"):
            engines.attach(url.replace("/memory", "/other")).start()
        sentinel = f"redis://127.0.0.1:{engine.sentinels[0].port}"
        with pytest.raises(engines.EngineError, match="is a Sentinel"):
            engines.attach(sentinel).start()
    finally:
        engine.close()


def test_a_cluster_with_tls_is_reached_with_the_certificates_of_its_address(
    tmp_path: Path, certified: tuple[Path, Path]
) -> None:
    config = tmp_path / "tls.conf"
    config.write_text(served(*certified))
    engine: Any = engines.create("redis-cluster@7", config=config)
    try:
        login = engine.start().url.removeprefix("redis+cluster://").rpartition("@")[0]
        ports = {node: free_port() for node in engine.servers}
        for node, port in ports.items():
            for name, value in (
                ("tls-port", port),
                ("tls-cluster", "yes"),
                ("tls-replication", "yes"),
                ("cluster-announce-tls-port", port),
            ):
                node.ask("CONFIG", "SET", name, str(value))
        url = f"rediss+cluster://{login}@127.0.0.1:{ports[engine.servers[0]]}"
        attached = engines.attach(f"{url}?ssl_ca_certs={certified[1]}")
        wait_until(
            lambda: set(_ports(attached)) == set(ports.values()), 60, "the nodes did not hear of all ports"
        )
        endpoint = attached.start()
        write("redis", endpoint, SESSIONS)
        assert all(primary.ask("DBSIZE") for primary in engine.primaries())
        for node in endpoint.nodes:
            with resp.Connection(redis_address(node)) as connection:
                assert connection.ask("PING") == "PONG"
        attached.stop()
        assert keys_of(engine) == []
        with pytest.raises(engines.StartFailed, match="certificate verify failed"):
            engines.attach(url).start()
    finally:
        engine.close()


def _ports(attached: Any) -> list[int]:
    """As the nodes tell those who come with TLS; those of a node that does not answer yet are missing."""
    try:
        return [int(node.partition("?")[0].rpartition(":")[2]) for node in attached.start().nodes]
    except engines.EngineError:
        return []
    finally:
        attached.stop()


def test_a_database_is_made_on_the_primary_and_dropped_on_its_successor() -> None:
    engine: Any = engines.create("postgres-ha", "asynchronous")
    try:
        url = engine.start().url
        attached = engines.attach(url)
        endpoint = attached.start()
        assert (endpoint.engine, endpoint.port) == ("postgres-ha", engine.primary().port)
        assert all(node.endswith(f"/{endpoint.namespace}") for node in endpoint.nodes)
        write("postgres", endpoint)
        old = engine.primary()
        old.stop()  # it sends what its standbys lack
        engine.promote(engine.most_advanced())
        attached.stop()
        assert engine.primary() is not old
        assert (endpoint.namespace,) not in engine.primary().ask("SELECT datname FROM pg_database")
    finally:
        engine.close()


def test_addresses_of_several_servers() -> None:
    assert [addresses.engine_of(url) for url in (CLUSTER, SENTINEL, STANDBYS)] == [
        "redis-cluster",
        "redis-sentinel",
        "postgres-ha",
    ]
    assert [(node.host, node.port) for node in nodes_of(CLUSTER)] == [("a", 7000), ("::1", 7001), ("c", 6379)]
    assert {node.password for node in nodes_of(CLUSTER)} == {"p@ss"}
    sentinels = sentinels_of(SENTINEL)
    assert [(one.host, one.port, one.password, one.tls) for one in sentinels] == [
        ("s1", 26379, None, TlsOptions()),
        ("s2", 26380, None, TlsOptions()),
    ]
    assert [(host.host, host.port, host.database, host.password) for host in hosts_of(STANDBYS)] == [
        ("a", 5432, "chats", "p@ss"),
        ("b", 5433, "chats", "p@ss"),
    ]
    assert places_of("postgresql:///chats?host=/run/a,/run/b&port=5433") == ["/run/a:5433", "/run/b:5433"]
    with pytest.raises(engines.EngineError, match="names no service"):
        named_primary("redis+sentinel://127.0.0.1:1")
    with pytest.raises(engines.EngineError, match="a cluster has only database 0"):
        nodes_of("redis+cluster://a/3")


def test_faults_that_break_servers_are_skipped_and_the_engine_is_known_from_the_address() -> None:
    request = VerifyRequest(
        targets=("redis",), url=SecretUrl(CLUSTER), faults=("node-kill", "reshard", "kill-app")
    )
    assert engine_of(request, "redis") == "redis-cluster"
    skipped = {cell.scenario.fault: cell.skipped for cell in select(request, {"redis": frozenset({"turn"})})}
    assert skipped["kill-app"] is None
    assert "is yours" in str(skipped["node-kill"])
    assert "is yours" in str(skipped["reshard"])
    wrong = VerifyRequest(targets=("redis",), engine="redis-sentinel", url=SecretUrl(CLUSTER))
    with pytest.raises(
        BadRequest, match="redis-sentinel was asked for, but the address is one of redis-cluster"
    ):
        engine_of(wrong, "redis")
    with pytest.raises(
        BadRequest, match="'postgres' runs on postgres or postgres-ha or patroni, not on 'redis-cluster'"
    ):
        engine_of(VerifyRequest(targets=("postgres",), url=SecretUrl(CLUSTER)), "postgres")


@pytest.mark.parametrize("engine", ["redis", "redis-cluster", "redis-sentinel"])
def test_the_variable_of_a_group_is_that_of_its_servers(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_REDIS_URL", CLUSTER)
    assert addresses.from_environment(engine) == SecretUrl(CLUSTER)
