"""A cluster: slots that move, a primary that dies, a shard that is emptied; on one real cluster for all of it."""

import asyncio
import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from recollect import (
    CannotOpen,
    Durability,
    EngineUnavailable,
    Message,
    NotWritten,
    OutcomeUnknown,
    Refused,
    Store,
    StoreReplaced,
    open_store,
)
from recollect.audit.auditing import audit
from recollect.doctor import examine
from recollect.errors import CredentialsRefused
from recollect.stores.redis import markers
from recollect.stores.redis.address import parse_address
from recollect.stores.redis.cluster import ClusterServers, _no_cluster
from recollect.stores.redis.errors import not_connected
from recollect.stores.redis.slots import SLOTS, Topology, View, of_one_cluster, read_view, slot_of, tag_in
from recollect.stores.redis.store import RedisStore
from recollect.stores.redis.wire import ReplyError
from recollect.verify import providers
from recollect.verify.engines import EngineOptions
from recollect.verify.engines.redis_cluster import ClusterNode, RedisClusterEngine
from recollect.verify.host.waiting import wait_until
from tests.stores.redis_places import new_prefix, started

DEADLINE_S = 60.0


class TinyCluster(RedisClusterEngine):
    primaries_count = 1
    replicas_count = 0

    def _topology(self, me: ClusterNode) -> str:
        """With an epoch above that of any other cluster."""
        return (
            super()._topology(me).replace(" 0 0 1 ", " 0 0 99 ").replace("currentEpoch 1", "currentEpoch 99")
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisClusterEngine]:
    with started("redis-cluster", "aof-always") as engine:
        assert isinstance(engine, RedisClusterEngine)
        yield engine


def address(engine: RedisClusterEngine) -> str:
    return f"{engine.endpoint.url}?prefix={new_prefix()}"


async def write_until(store: Store, session: str, done: asyncio.Event) -> list[str]:
    """Appends one numbered message after another; retries what may not have been written, under the same turn id."""
    acknowledged: list[str] = []
    while not done.is_set():
        text = str(len(acknowledged))
        try:
            await store.append(session, [Message("user", text)], turn=text)
        except (NotWritten, OutcomeUnknown):
            continue
        acknowledged.append(text)
        await asyncio.sleep(0)
    return acknowledged


async def texts(store: Store, session: str) -> list[str]:
    return [item.message.text for item in await store.history(session) if isinstance(item.message, Message)]


def in_slots_of(engine: RedisClusterEngine, node: ClusterNode, count: int) -> list[str]:
    owned = set(engine.slots_of(node))
    names = (f"session-{number}" for number in range(100_000))
    found = (name for name in names if slot_of(f"s{name}".encode()) in owned)
    return [next(found) for _ in range(count)]


async def test_sessions_are_spread_and_all_are_listed(cluster: RedisClusterEngine) -> None:
    async with open_store(address(cluster), durability="fsynced") as store:
        names = [f"session {number}" for number in range(60)]
        receipts = await asyncio.gather(*(store.append(name, [Message("user", name)]) for name in names))
        assert {receipt.durability.value for receipt in receipts} == {"fsynced"}
        assert sorted([name async for name in store.sessions()]) == sorted(names)
        assert len([name async for name in store.sessions(prefix="session 1", updated_after=0.0)]) == 11
        assert await store.sweep() == 0
    nodes = {
        slot_of(f"s{name}".encode()) * 3 // SLOTS for name in ("session%200", "session%201", "session%202")
    }
    assert len(nodes) > 1, "the names above are on several primaries"


async def test_sessions_in_different_slots_are_refused_together(cluster: RedisClusterEngine) -> None:
    async with open_store(address(cluster)) as store:
        with pytest.raises(Refused, match="different slots of a cluster"):
            await store.append_many({"a": [Message("user", "1")], "b": [Message("user", "2")]})
        assert [await store.position(name) for name in "ab"] == [0, 0]


async def test_what_spans_slots_is_refused_before_anything_is_sent() -> None:
    """A connection that breaks meanwhile leaves nothing unknown, whichever way the cluster is named."""
    tiny = TinyCluster(providers.find("redis-cluster"), EngineOptions(policy="none"))
    try:
        whole = tiny.start().url
        [node] = tiny.servers
        for url in (whole, node.endpoint.url):
            async with open_store(f"{url}?prefix={new_prefix()}", timeout_s=5) as store:
                await store.append("a", [Message("user", "1")])
                node.pause()
                try:
                    with pytest.raises(Refused, match="different slots of a cluster"):
                        await store.append_many({"a": [Message("user", "2")], "b": [Message("user", "1")]})
                    with pytest.raises(Refused, match="different slots of a cluster"):
                        await store.fork("a", "b")
                finally:
                    node.resume()
                beside = next(
                    name
                    for name in map(str, range(100_000))
                    if slot_of(f"s{name}".encode()) == slot_of(b"sa")
                )
                await store.append_many({"a": [Message("user", "2")], beside: [Message("user", "1")]})
                assert [await store.position(name) for name in ("a", "b", beside)] == [2, 0, 1]
    finally:
        tiny.close()


async def test_receipts_count_the_primaries_that_serve_now(cluster: RedisClusterEngine) -> None:
    weak, other, _ = cluster.primaries()
    [replica] = cluster.replicas_of(weak)
    [mine] = in_slots_of(cluster, weak, 1)
    [elsewhere] = in_slots_of(cluster, other, 1)

    async def becomes(store: Store, durability: Durability) -> None:
        # Sent on to the new primary, which tells that there is one.
        await store.append(mine, [Message("user", "x")])
        async with asyncio.timeout(DEADLINE_S):
            while (await store.append(elsewhere, [Message("user", "x")])).durability is not durability:
                await asyncio.sleep(0.01)
        assert store.durability is durability

    weak.ask("CONFIG", "SET", "appendfsync", "everysec")
    try:
        async with open_store(address(cluster), timeout_s=DEADLINE_S) as store:
            await becomes(store, Durability.BUFFERED)
            for taking_over, before, durability in (
                (replica, weak, Durability.FSYNCED),
                (weak, replica, Durability.BUFFERED),
            ):
                follows = functools.partial(_follows, cluster, taking_over, before)
                await asyncio.to_thread(wait_until, follows, DEADLINE_S, "it does not know its replica yet")
                cluster.ask_to_fail_over(taking_over)
                await asyncio.to_thread(cluster.await_successor, before)
                await becomes(store, durability)
                await asyncio.to_thread(cluster.await_ready, DEADLINE_S)
    finally:
        weak.ask("CONFIG", "SET", "appendfsync", "always")


def _follows(cluster: RedisClusterEngine, replica: ClusterNode, primary: ClusterNode) -> bool:
    """In the eyes of the primary."""
    return any(line[0] == replica.id and line[3] == primary.id for line in cluster.view(primary))


async def test_slots_that_move_lose_nothing_and_hide_nobody(cluster: RedisClusterEngine) -> None:
    source, target, _ = cluster.primaries()
    names = in_slots_of(cluster, source, 3)
    others = [f"other {number}" for number in range(40)]
    async with open_store(address(cluster), timeout_s=DEADLINE_S) as store:
        await asyncio.gather(*(store.append(name, [Message("user", "x")]) for name in others))
        done = asyncio.Event()
        writers = [asyncio.create_task(write_until(store, name, done)) for name in names]
        listed: list[set[str]] = []
        for name in names:
            before = await store.position(name)
            for _ in cluster.move_slot(slot_of(f"s{name}".encode()), source, target):
                listed.append({name async for name in store.sessions()})  # in the middle of a move
            while await store.position(name) <= before:  # it goes on at its new place
                await asyncio.sleep(0.01)
        done.set()
        for name, writer in zip(names, writers, strict=True):
            acknowledged = await writer
            assert await texts(store, name) == acknowledged
        assert len(listed) >= len(names), "each of these sessions has several keys to move"
        for one in listed:
            assert one >= {*others}
        assert {name async for name in store.sessions()} >= {*names, *others}


async def test_a_new_store_waits_for_the_replicas_that_its_markers_need(cluster: RedisClusterEngine) -> None:
    url, primary = address(cluster), cluster.primaries()[0]

    def wanted(replicas: str) -> None:
        primary.ask("CONFIG", "SET", "min-replicas-to-write", replicas)

    async def fewer() -> None:
        await asyncio.sleep(0.3)
        wanted("0")

    wanted("9")
    try:
        with pytest.raises(EngineUnavailable, match="too few replicas are connected"):
            await open_store(url, timeout_s=0.2)
        coming = asyncio.create_task(fewer())
        async with open_store(url, timeout_s=30):
            assert coming.done()
    finally:
        wanted("0")


async def test_while_there_are_too_few_replicas_nothing_is_written_and_the_reason_is_told() -> None:
    with started("redis-cluster", "none") as engine:
        assert isinstance(engine, RedisClusterEngine)
        url = address(engine)
        async with open_store(url, replicas=1, timeout_s=3) as store:
            [mine] = in_slots_of(engine, engine.primaries()[0], 1)
            await store.append(mine, [Message("user", "before")])
            for replica in engine.replicas_of(engine.primaries()[0]):
                replica.kill()
            with pytest.raises(OutcomeUnknown):
                await store.append(mine, [Message("user", "sent")], turn="sent")
            for turn in ("first", "second"):
                with pytest.raises(NotWritten, match="1 replica asked for, 0 connected"):
                    await store.append(mine, [Message("user", turn)], turn=turn)
            assert await texts(store, mine) == ["before", "sent"], "reads need no replica"


async def test_a_primary_that_dies_is_lived_through(cluster: RedisClusterEngine) -> None:
    victim = cluster.primaries()[2]
    [replica] = cluster.replicas_of(victim)
    [mine] = in_slots_of(cluster, victim, 1)
    [other] = in_slots_of(cluster, cluster.primaries()[1], 1)
    async with open_store(address(cluster), timeout_s=DEADLINE_S, replicas=1) as store:
        done = asyncio.Event()
        writers = [asyncio.create_task(write_until(store, name, done)) for name in (mine, other)]
        while await store.position(mine) < 20 or await store.position(other) < 20:
            await asyncio.sleep(0.01)
        victim.kill()
        await asyncio.to_thread(cluster.await_successor, victim)
        assert replica in cluster.primaries()
        assert len(await texts(store, mine)) >= 20, "reads need no replica of the new primary"
        await asyncio.to_thread(victim.start)
        await asyncio.to_thread(cluster.await_ready, DEADLINE_S)
        before = await store.position(mine)
        while await store.position(mine) <= before:
            await asyncio.sleep(0.01)
        done.set()
        for name, writer in zip((mine, other), writers, strict=True):
            acknowledged = await writer
            assert await texts(store, name) == acknowledged


async def test_many_read_at_once_after_a_planned_failover(cluster: RedisClusterEngine) -> None:
    """More than there are connections: the new ones meet a server that has become a replica."""
    old = cluster.primaries()[0]
    [replica] = cluster.replicas_of(old)
    [mine] = in_slots_of(cluster, old, 1)
    async with open_store(address(cluster), timeout_s=DEADLINE_S) as store:
        await store.append(mine, [Message("user", "x")])
        cluster.ask_to_fail_over(replica)
        await asyncio.to_thread(cluster.await_successor, old)
        assert await asyncio.gather(*(texts(store, mine) for _ in range(16))) == [["x"]] * 16
    await asyncio.to_thread(cluster.await_ready, DEADLINE_S)


async def read_until_refused(url: str, session: str, begun: asyncio.Event) -> set[tuple[str, ...]]:
    """Whatever a store that only reads is shown, until it is told that the shard is another one."""
    seen: set[tuple[str, ...]] = set()
    async with open_store(url, timeout_s=DEADLINE_S) as reader, asyncio.timeout(DEADLINE_S):
        while True:
            try:
                seen.add(tuple(await texts(reader, session)))
                begun.set()
            except StoreReplaced:
                return seen


async def test_an_emptied_shard_is_said_and_which(cluster: RedisClusterEngine) -> None:
    url = address(cluster)
    victim = cluster.primaries()[0]
    [replica] = cluster.replicas_of(victim)
    [mine] = in_slots_of(cluster, victim, 1)
    [other] = in_slots_of(cluster, cluster.primaries()[1], 1)
    async with open_store(url, timeout_s=DEADLINE_S) as store:
        await store.append(mine, [Message("user", "gone")])
        await store.append(other, [Message("user", "kept")])
        begun = asyncio.Event()
        reading = asyncio.create_task(read_until_refused(url, mine, begun))
        await begun.wait()
        for node in (replica, victim):
            node.kill()
            node.empty()
        for node in (victim, replica):
            await asyncio.to_thread(node.start)
        await asyncio.to_thread(cluster.await_ready, DEADLINE_S)
        with pytest.raises(StoreReplaced, match=f"the shard at 127.0.0.1:{victim.port} .*was emptied"):
            await store.append(mine, [Message("user", "more")])
        with pytest.raises(StoreReplaced, match="its sessions are gone"):
            await store.history(mine)
        assert await reading == {("gone",)}, "an empty memory was shown while the cluster was coming back"
        assert await texts(store, other) == ["kept"], "the other shards go on"
        with pytest.raises(StoreReplaced, match=r"\?replaced=accept"):
            await open_store(url)
        async with open_store(f"{url}&replaced=accept") as accepted:
            assert accepted.identity == store.identity
            assert await accepted.history(mine) == []
            assert await texts(accepted, other) == ["kept"]
    async with open_store(url) as again:
        assert (await again.append(mine, [Message("user", "new")])).first == 1


async def test_a_shard_emptied_under_a_running_store_takes_nothing_more(cluster: RedisClusterEngine) -> None:
    url, victim = address(cluster), cluster.primaries()[0]
    mine, unused = in_slots_of(cluster, victim, 2)
    [other] = in_slots_of(cluster, cluster.primaries()[1], 1)
    async with open_store(url, timeout_s=DEADLINE_S) as store:
        for session in (mine, other):
            await store.append(session, [Message("user", "a")])
        prefix = parse_address(url).prefix
        for key in list(map(str, victim.ask("KEYS", f"{prefix}:*"))):  # type: ignore[arg-type]
            victim.ask("DEL", key)
        with pytest.raises(StoreReplaced, match="was emptied"):
            assert [session async for session in store.sessions()] == [other]
        for call in (store.append(unused, [Message("user", "b")]), store.history(unused)):
            with pytest.raises(StoreReplaced, match="was emptied"):
                await call
        assert await texts(store, other) == ["a"]


async def test_one_node_is_not_the_cluster_and_says_so(cluster: RedisClusterEngine) -> None:
    primary = cluster.primaries()[0]
    for node in (primary, *cluster.replicas_of(primary)):
        whole = rf"redis\+cluster://127.0.0.1:{node.port}$"
        with pytest.raises(CannotOpen, match=f"one node of a cluster .* open the cluster: {whole}"):
            await open_store(node.endpoint.url)
        with pytest.raises(CannotOpen, match=f"one node of a cluster .* audit the cluster: {whole}"):
            await audit(node.endpoint.url)
        steps = [
            step for symptom in (await examine(node.endpoint.url)).findings for step in symptom.procedure
        ]
        assert "examine the whole cluster: redis+cluster://host:port" in steps


async def test_a_server_that_is_no_cluster_says_so() -> None:
    with started("redis", "none") as engine:
        with pytest.raises(CannotOpen, match="is no node of a cluster; open it as redis://"):
            await open_store(engine.endpoint.url.replace("redis://", "redis+cluster://"), timeout_s=1000)
        async with open_store(engine.endpoint.url) as store:
            await store.append("s", [Message("user", "hello")])
        assert (await audit(engine.endpoint.url)).sessions == 1


async def open_again_and_again(url: str) -> None:
    """Until it is refused: a node that is late with its answer is not waited for."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            async with open_store(url, timeout_s=1000):
                await asyncio.sleep(0)


async def test_a_node_of_another_cluster_in_the_list_is_refused_and_later_ignored(
    cluster: RedisClusterEngine,
) -> None:
    """Its claims would be mixed with ours, by their epochs, and sessions would be spread over both."""
    other = TinyCluster(providers.find("redis-cluster"), EngineOptions(policy="none"))
    try:
        other.start()
        nodes = [*cluster.servers, *other.servers]
        # No password fits both.
        both = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        with pytest.raises(CannotOpen, match="these are nodes of 2 clusters"):
            await open_again_and_again(f"{both}?prefix={new_prefix()}")
        async with open_store(f"{both.rpartition(',')[0]}?prefix={new_prefix()}") as store:
            assert isinstance(store, RedisStore)
            servers = store._servers
            assert isinstance(servers, ClusterServers)
            before = servers._topology.owners
            found = parse_address(both)
            servers._address = found  # as if one of our addresses had been given to that node
            await servers.learn()
            assert servers._topology.owners == before
            await store.append("s", [Message("user", "here")])
    finally:
        other.close()


# ---- without an engine


def test_addresses() -> None:
    found = parse_address("rediss+cluster://app:p%40ss@a,b:7001,[::1]:7002?prefix=x")
    assert found.nodes == (("a", 6379), ("b", 7001), ("::1", 7002))
    assert "p@ss" not in repr(found)
    one = found.at(("b", 7001))
    assert (one.shown, one.arguments["password"], one.arguments["port"]) == ("rediss://b:7001", "p@ss", 7001)
    with pytest.raises(Refused, match="a cluster has only database 0"):
        parse_address("redis+cluster://a,b/3")
    sentinels = parse_address("redis+sentinel://u:p@s1,s2:5000/my%20service/3")
    assert (sentinels.nodes, sentinels.service) == ((("s1", 26379), ("s2", 5000)), "my service")
    assert sentinels.at(("h", 1)).arguments["db"] == 3
    assert sentinels.sentinel(("s1", 1)).arguments.keys().isdisjoint({"db", "username", "password"})
    with pytest.raises(Refused, match="needs the name of the service"):
        parse_address("redis+sentinel://s1,s2")
    with pytest.raises(Refused, match="db=3: a cluster has only database 0"):
        parse_address("redis+cluster://a,b?db=3")
    with pytest.raises(Refused, match=r"ssl_ca_certs: only with TLS, so write rediss\+cluster://"):
        parse_address("redis+cluster://a,b?ssl_ca_certs=file.pem")
    with pytest.raises(Refused, match="only 'accept' is known"):
        parse_address("redis+cluster://a?replaced=yes")


def test_a_missing_password_and_silence_are_told_as_such() -> None:
    one = parse_address("redis+cluster://a").at(("a", 6379))
    missing = _no_cluster(ReplyError("NOAUTH Authentication required."), one)
    assert isinstance(missing, CredentialsRefused)
    assert "check the user and the password" in str(missing)
    assert "may not run CLUSTER NODES" in str(
        _no_cluster(ReplyError("NOPERM this user has no permissions"), one)
    )
    assert str(not_connected(TimeoutError(), "redis://a")) == "redis://a does not answer in time"


def view(text: str) -> View:
    found = read_view(text.encode(), ("asked", 1), by_hostname=False)
    assert found is not None
    return found


STALE = view(
    "a 10.0.0.1:6379@16379 myself,master - 0 0 5 connected 0-8191 [17->-b]\n"
    "b 10.0.0.2:6379@16379,name master - 0 0 6 connected 8192-16383\n"
    "c :6381@16381 slave a 0 0 5 connected\n"
)


def test_views_are_told_apart_by_the_ids_in_them() -> None:
    later = view("c 10.0.0.3:6381@16381 myself,master - 0 0 7 connected 0-8191\n")
    other = view("x 10.0.0.1:6379@16379 myself,master - 0 0 9 connected 0-16383\n")
    nobody = view("y 10.0.0.9:6379@16379 myself,master - 0 0 0 connected\n")
    bridge = view(
        "x 10.0.0.1:6379@16379 master - 0 0 9 connected 0-16383\nc 10.0.0.3:6381@16381 slave x 0 0 9 connected\n"
    )
    assert of_one_cluster([STALE, nobody, other, later]) == [[other], [STALE, later]]
    assert of_one_cluster([STALE, other, bridge]) == [[STALE, other, bridge]]


def test_the_newest_claim_counts() -> None:
    newer = view(
        "a 10.0.0.1:6379@16379 master,fail - 0 0 5 connected\n"
        "c 10.0.0.3:6381@16381 master - 0 0 7 connected 0-8191\n"
        "b 10.0.0.2:6379@16379 myself,master - 0 0 6 connected 8192-16383\n"
    )
    for views in ([STALE, newer], [newer, STALE]):
        found = Topology(views)
        assert (found.owners[0], found.owners[-1]) == (("10.0.0.3", 6381), ("10.0.0.2", 6379))
        assert found.is_complete
        assert found.ranges_of(("10.0.0.3", 6381)) == "0-8191"
    assert STALE.nodes[2] == ("asked", 6381)


def test_an_open_slot_is_asked_at_its_source_first() -> None:
    found = Topology([STALE])
    assert found.holders(17) == [("10.0.0.1", 6379), ("10.0.0.2", 6379)]
    assert found.holders(18) == [("10.0.0.1", 6379)]
    assert found.state(17) != Topology([replace(STALE, moving=[])]).state(17)


def test_markers_are_spread_over_the_slots() -> None:
    slots = markers.slots()
    assert [slot // (SLOTS // markers.MARKERS) for slot in slots] == list(range(markers.MARKERS))
    assert all(tag.startswith("i") for tag in markers.tags())


def test_every_slot_has_a_tag() -> None:
    tags = [tag_in(slot) for slot in range(SLOTS)]
    assert [slot_of(f"p:{{{tag}}}:erased".encode()) for tag in tags] == list(range(SLOTS))
