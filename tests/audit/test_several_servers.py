"""A memory on a cluster, or behind sentinels: healthy ones pass, and damage is told with the shard it is on."""

import asyncio
import itertools
import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from typer.testing import CliRunner

from recollect import Message, cli, open_store
from recollect.audit import AuditReport, audit
from recollect.errors import EngineUnavailable, RecollectError
from recollect.stores.redis import markers
from recollect.stores.redis.slots import slot_of
from recollect.verify.engines.redis_cluster import ClusterNode, RedisClusterEngine
from recollect.verify.engines.redis_sentinel import RedisSentinelEngine
from tests.audit.memories import said, written
from tests.audit.writers import changes
from tests.stores.redis_places import started

DEADLINE_S = 60.0
SESSIONS = 30
SESSIONS_BESIDE = [f"session {number}" for number in range(SESSIONS)]


@pytest.fixture(scope="module")
def engine() -> Iterator[RedisClusterEngine]:
    with started("redis-cluster", "none") as engine:
        assert isinstance(engine, RedisClusterEngine)
        yield engine


@dataclass
class Memory:
    engine: RedisClusterEngine
    prefix: str

    @property
    def own(self) -> str:
        """A session that has its slot for itself."""
        others = {self.slot(name) for name in ("other", *SESSIONS_BESIDE)}
        names = (f"own-{self.prefix}-{number}" for number in itertools.count())
        return next(name for name in names if self.slot(name) not in others)

    @property
    def url(self) -> str:
        return f"{self.engine.endpoint.url}?prefix={self.prefix}"

    def slot(self, session: str) -> int:
        return slot_of(f"s{quote(session)}".encode())

    def home(self, session: str) -> ClusterNode:
        return next(
            node for node in self.engine.primaries() if self.slot(session) in self.engine.slots_of(node)
        )

    def hands(self, node: ClusterNode) -> Any:
        return redis.Redis.from_url(node.url)

    def key(self, session: str, kind: str) -> str:
        return f"{self.prefix}:{{s{session}}}:{kind}"

    async def audit(self, **options: Any) -> AuditReport:
        return await audit(self.url, rate=None, timeout_s=DEADLINE_S, **options)


def shard(node: ClusterNode) -> str:
    return f"127.0.0.1:{node.seen}"


@pytest.fixture
async def memory(engine: RedisClusterEngine) -> Memory:
    """Three turns of three messages in one session, and sessions on every shard."""
    made = Memory(engine, f"a{uuid.uuid4().hex}")
    async with open_store(made.url, timeout_s=DEADLINE_S) as store:
        for turn in range(3):
            await store.append(made.own, said("a", "b", "c"), turn=f"turn-{turn}")
        await store.append("other", said("x"))
        for name in SESSIONS_BESIDE:
            await store.append(name, said("x"))
    return made


async def test_a_healthy_cluster_passes(memory: Memory) -> None:
    report = await memory.audit()
    assert (report.sessions, report.messages, report.counts) == (SESSIONS + 2, SESSIONS + 10, {})
    assert (report.engine, report.exit_code()) == ("redis-cluster", 0)
    assert sum(report.shards.values()) == report.sessions
    assert sorted(report.shards) == sorted(shard(node) for node in memory.engine.primaries())
    async with open_store(memory.url, timeout_s=DEADLINE_S) as store:
        assert report.identity == store.identity
    assert report.settings is not None
    assert report.settings.engine == "redis-cluster"


async def test_one_node_in_the_address_is_enough(memory: Memory) -> None:
    primary = memory.engine.primaries()[0]
    for node in (primary, *memory.engine.replicas_of(primary)):
        url = f"{node.url.replace('redis://', 'redis+cluster://')}?prefix={memory.prefix}"
        assert (await audit(url)).sessions == (await audit(memory.url)).sessions


async def test_nothing_is_written(memory: Memory) -> None:
    """With a user who may not: and no key of any server has changed."""
    user = f"auditor-{memory.prefix}"
    rights = ("+@read", "+@connection", "+@transaction", "+info", "+time", "+cluster|nodes")
    listing = ("+cluster|countkeysinslot", "+cluster|getkeysinslot")
    for node in memory.engine.servers:
        node.ask("ACL", "SETUSER", user, "on", ">secret", f"~{memory.prefix}:*", *rights, *listing)
    before = [node.info("persistence")["rdb_changes_since_last_save"] for node in memory.engine.servers]
    places = memory.url.rpartition("@")[2]
    url = f"redis+cluster://{user}:secret@{places.removeprefix('redis+cluster://')}"
    report = await audit(url, rate=None, timeout_s=DEADLINE_S)
    assert (report.sessions, report.counts) == (SESSIONS + 2, {})
    after = [node.info("persistence")["rdb_changes_since_last_save"] for node in memory.engine.servers]
    assert after == before
    for node in memory.engine.servers:
        node.ask("ACL", "SETUSER", user, "-cluster|getkeysinslot")
    with pytest.raises(RecollectError, match="getkeysinslot"):
        await audit(url, rate=None, timeout_s=DEADLINE_S)
    for node in memory.engine.servers:
        node.ask("ACL", "DELUSER", user)


async def test_damage_is_told_with_its_shard(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    home, key = memory.home(memory.own), memory.key(memory.own, "m")
    with memory.hands(home) as hands:
        hands.lrem(key, 1, hands.lindex(key, 4))
        record = bytearray(hands.lindex(key, 1))
        record[record.index(b"user")] ^= 1
        hands.lset(key, 1, bytes(record))
    with memory.hands(memory.home("other")) as hands:
        hands.delete(memory.key("other", "c"))
    report = await memory.audit()
    assert [(one.name, one.session, one.shard, one.first) for one in report.findings] == [
        ("checksum", memory.own, shard(home), 2),
        ("counters", "other", shard(memory.home("other")), None),
        ("half-turn", memory.own, shard(home), 5),
    ]
    monkeypatch.setenv("COLUMNS", "1000")
    arguments = ["audit", memory.url, "--json", "-"]
    ended = await asyncio.to_thread(CliRunner().invoke, cli.build(["audit"]), arguments)
    assert ended.exit_code == 1
    told = json.loads(ended.stdout)
    assert told["status"] == "violated"
    assert told["findings"][0]["shard"] == shard(home)
    assert f"{memory.own} (on {shard(home)}): message 5 is gone" in ended.stderr


async def test_an_emptied_shard_is_told_by_name(memory: Memory) -> None:
    """Only this memory's keys are removed: other tests share the cluster."""
    lost = memory.engine.primaries()[1]
    with memory.hands(lost) as hands:
        for name in list(hands.scan_iter(f"{memory.prefix}:*")):
            hands.delete(name)
    report = await memory.audit()
    [found] = report.findings
    assert (found.name, found.shard, report.exit_code()) == ("emptied", shard(lost), 1)
    assert shard(lost) in found.sentence
    assert shard(lost) not in report.shards
    assert report.identity is not None


async def test_a_shard_of_another_store_is_told(memory: Memory) -> None:
    foreign = memory.engine.primaries()[0]
    owned = set(memory.engine.slots_of(foreign))
    with memory.hands(foreign) as hands:
        for index, slot in enumerate(markers.slots()):
            if slot in owned:
                hands.set(markers.name_of(memory.prefix, index), markers.sealed("somebody-else"))
    [found] = (await memory.audit()).findings
    assert (found.name, found.shard) == ("emptied", shard(foreign))
    assert "somebody-else" in found.sentence


async def test_slots_that_move_meanwhile_are_told_and_not_accused(memory: Memory) -> None:
    """At every step of a move, between two keys, while others write."""
    source = memory.home(memory.own)
    target = next(node for node in memory.engine.primaries() if node is not source)
    slot = memory.slot(memory.own)
    before = await memory.audit()
    begun, reading = asyncio.Event(), None
    for _ in memory.engine.move_slot(slot, source, target):
        if reading is None:
            reading = asyncio.create_task(memory.audit(told=lambda progress, total: begun.set()))
            await asyncio.wait_for(begun.wait(), DEADLINE_S)
        await asyncio.sleep(0.02)  # it may come further meanwhile, or not
    assert reading is not None
    report = await reading
    assert [(one.name, one.shard) for one in report.findings] == [("moved", shard(target))]
    assert f"slot {slot} moved from {shard(source)} to {shard(target)}" in report.findings[0].sentence
    assert (report.sessions, report.messages, report.exit_code()) == (before.sessions, before.messages, 0)
    assert (await memory.audit()).counts == {}


async def test_a_slot_that_stays_open_is_not_a_success(memory: Memory) -> None:
    source = memory.home(memory.own)
    target = next(node for node in memory.engine.primaries() if node is not source)
    moving = iter(memory.engine.move_slot(memory.slot(memory.own), source, target))
    read = {memory.key(memory.own, kind) for kind in "mct"}
    with memory.hands(source) as hands:
        here = read
        while here == read:  # until one of the keys that an audit reads is over there
            next(moving)
            here = read & {*hands.execute_command("CLUSTER GETKEYSINSLOT", memory.slot(memory.own), 1000)}
    assert here
    try:
        with pytest.raises(EngineUnavailable, match="still moving from") as refused:
            await audit(memory.url, rate=None, timeout_s=0.5)
    finally:
        for _ in moving:
            pass
    assert f"slot {memory.slot(memory.own)} cannot be read" in str(refused.value)
    assert (await memory.audit()).counts == {}


async def test_an_interrupted_audit_goes_on_although_a_slot_has_moved(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.audit.redis_cluster.KEYS_AT_ONCE", 8)
    file = tmp_path / "progress"

    class Enough(Exception):
        pass

    def stop(progress: Any, total: object) -> None:
        if progress.sessions == SESSIONS // 2:
            raise Enough

    with pytest.raises(Enough):
        await memory.audit(resume=file, told=stop)
    assert 0 < json.loads(file.read_text())["sessions"] < SESSIONS // 2 + 1
    source = memory.home(memory.own)
    target = next(node for node in memory.engine.primaries() if node is not source)
    for _ in memory.engine.move_slot(memory.slot(memory.own), source, target):
        pass
    report = await memory.audit(resume=file)
    assert (report.sessions, report.messages, report.counts) == (SESSIONS + 2, SESSIONS + 10, {})


async def test_beside_writers_nobody_is_accused(memory: Memory) -> None:
    async with open_store(memory.url, timeout_s=DEADLINE_S) as store:
        sessions = SESSIONS_BESIDE[:6]
        writer = asyncio.create_task(_one_session_each(store, random.Random(7), sessions))
        reports = [await memory.audit()]
        while not writer.done():
            reports.append(await memory.audit())
        await writer
    assert [report.counts for report in reports if report.counts] == []


async def _one_session_each(store: Any, random_: Any, sessions: list[str]) -> None:
    for session in sessions:
        await changes(store, random_, [session], 15)


async def test_the_primary_that_sentinels_name() -> None:
    prefix = f"a{uuid.uuid4().hex}"
    with started("redis-sentinel", "none") as engine:
        assert isinstance(engine, RedisSentinelEngine)
        url = f"{engine.endpoint.url}?prefix={prefix}"
        async with open_store(url, timeout_s=DEADLINE_S) as store:
            await written(store)
        primary = engine.primary()
        place = f"127.0.0.1:{primary.port}"
        report = await audit(url, rate=None)
        assert (report.engine, report.sessions, report.messages) == ("redis-sentinel", 2, 10)
        assert (report.counts, report.shards, report.exit_code()) == ({}, {place: 2}, 0)
        with redis.Redis.from_url(primary.endpoint.url) as hands:
            hands.lpop(f"{prefix}:{{ss}}:m")
        report = await audit(url, rate=None)
        assert [(one.name, one.shard, one.first) for one in report.findings] == [("half-turn", place, 1)]


async def test_a_witness_that_is_ahead_of_a_cluster_is_told(memory: Memory, tmp_path: Path) -> None:
    """For that, every primary is asked what it is: most of them do not have the slot of a store's identity."""
    witness = tmp_path / "witness"
    async with open_store(memory.url, witness=witness) as store:
        await store.append(memory.own, [Message("user", "first")])
        await store.append(memory.own, [Message("user", "second")])
    memory.home(memory.own).ask("HSET", f"{memory.prefix}:{{s{quote(memory.own)}}}:c", "last", "1")
    found = await audit(memory.url, witness=witness)
    assert "replaced" in [finding.name for finding in found.findings]
