"""The silent losses that `bench/watch.py` plants, and the hands that do it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import redis
from tests.watch.test_other_losses import _give_to_owner
from tests.watch.test_redis_losses import restore

from recollect import Message, open_store
from recollect.verify import engines
from recollect.verify.disk import Faults, Recorder


@dataclass
class Scene:
    """An engine with an application's memory in it, and a watch beside."""

    engine: Any
    folder: Path
    url: str
    replica: Any = None
    primary: list[Any] = field(default_factory=list)
    alarms: list[tuple[float, str]] = field(default_factory=list)
    harmed_at: float = 0.0
    recorder: Recorder | None = None
    """Of the engine's disk, which it can slow down."""

    @property
    def witness(self) -> Path:
        return self.folder / "witness"

    async def application(self) -> None:
        """What it says now and then, with a witness elsewhere."""
        async with open_store(self.url, ttl=timedelta(days=7), witness=self.witness) as store:
            for number in range(5):
                for session in ("first", "second", "third"):
                    said = [Message("user", f"question {number}"), Message("assistant", "answer")]
                    await store.append(session, said)

    async def told(self, known: int, name: str, seconds: float) -> float | None:
        """When the watch told this, after the alarms that are known already; None if it did not."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for at, told in self.alarms[known:]:
                if told == name:
                    return at
            await asyncio.sleep(0.05)
        return None

    # ---- hands

    @property
    def file(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def redis(self) -> Any:
        return redis.Redis.from_url(self.engine.endpoint.socket_url)

    async def sql(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.engine.endpoint.socket_url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    def sqlite(self, statement: str) -> None:
        connection = sqlite3.connect(self.file, isolation_level=None)
        connection.execute(statement)
        connection.close()

    def copied(self, name: str, source: Path) -> Path:
        copy = self.folder / name
        shutil.copytree(source, copy, symlinks=True)
        return copy


Harm = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Plant:
    name: str
    engine: str
    policy: str
    harm: Harm
    told: str
    """The alarm."""
    trace: bool = True
    """Whether an audit with the application's witness can see it afterwards."""
    replica: bool = False
    watch: tuple[str, ...] = ()
    before: Harm | None = None
    """Done while the watch has seen little yet: a backup."""
    recorded: bool = False
    """Whether the engine's disk is one that can be slowed down."""


# ---- the disk


def syncs_in(seconds: float) -> Harm:
    async def harm(scene: Scene) -> None:
        assert scene.recorder is not None
        scene.recorder.faults(Faults(sync_delay_s=seconds))

    return harm


# ---- Redis


async def flushes(scene: Scene) -> None:
    scene.redis().flushall()


async def restarts(scene: Scene) -> None:
    await asyncio.to_thread(scene.engine.kill)
    await asyncio.to_thread(scene.engine.start)


async def fails_over(scene: Scene) -> None:
    """When the watch says that the replica is late, there is something to lose."""
    await asyncio.to_thread(scene.replica.pause_replay)
    await scene.application()
    await scene.told(0, "stale-replica", 60)
    await asyncio.to_thread(scene.engine.kill)
    scene.harmed_at = time.monotonic()
    scene.primary[0] = await asyncio.to_thread(scene.replica.promote)


async def lags(scene: Scene) -> None:
    await asyncio.to_thread(scene.replica.pause_replay)


def sets(name: str, value: str) -> Harm:
    async def harm(scene: Scene) -> None:
        scene.redis().config_set(name, value)

    return harm


async def evicts(scene: Scene) -> None:
    hands = scene.redis()
    hands.config_set("maxmemory", hands.info("memory")["used_memory"] + 500_000)
    lists = list(hands.scan_iter("*recollect-watch*:m"))
    number = 0
    while all(hands.exists(key) for key in lists):  # chosen at random
        number += 1
        hands.set(f"filler-{number}", "x" * 2_000)
    scene.harmed_at = time.monotonic()
    hands.config_set("maxmemory", 0)


async def deletes_keys(scene: Scene) -> None:
    hands = scene.redis()
    hands.delete(*hands.scan_iter("*:m"))


async def trims(scene: Scene) -> None:
    hands = scene.redis()
    for key in hands.scan_iter("*:m"):
        hands.ltrim(key, -2, -1)


async def cuts_expiry(scene: Scene) -> None:
    hands = scene.redis()
    for key in hands.scan_iter("*:m"):
        hands.expire(key, 300)


async def flips(scene: Scene) -> None:
    hands = scene.redis()
    for key in hands.scan_iter("*:m"):
        hands.lset(key, 1, hands.lindex(key, 1).replace(b"a", b"b"))


async def reverses(scene: Scene) -> None:
    hands = scene.redis()
    for key in hands.scan_iter("*:m"):
        elements = hands.lrange(key, 0, -1)
        for place, element in enumerate(reversed(elements)):
            hands.lset(key, place, element)


async def backs_up(scene: Scene) -> None:
    await asyncio.to_thread(scene.engine.stop)
    scene.copied("backup", scene.engine.data)
    await asyncio.to_thread(scene.engine.start)


async def restores_dump(scene: Scene) -> None:
    await asyncio.to_thread(scene.engine.stop)
    restore(scene.folder / "backup", scene.engine.data)
    await asyncio.to_thread(scene.engine.start)


async def swaps_volume(scene: Scene) -> None:
    other = engines.create(scene.engine.name, scene.engine.policy)
    await asyncio.to_thread(other.start)
    try:
        async with open_store(other.endpoint.socket_url or "") as store:
            await store.append("s", [Message("user", "of another store")])
        other.stop()
        await asyncio.to_thread(scene.engine.stop)
        assert other.data is not None
        restore(other.data, scene.engine.data)
        await asyncio.to_thread(scene.engine.start)
    finally:
        other.close()


# ---- PostgreSQL


def runs(*statements: str) -> Harm:
    async def harm(scene: Scene) -> None:
        await scene.sql(*statements)

    return harm


async def restores_cluster(scene: Scene) -> None:
    await asyncio.to_thread(scene.engine.stop)
    shutil.rmtree(scene.engine.data)
    shutil.copytree(scene.folder / "backup", scene.engine.data, symlinks=True)
    _give_to_owner(scene.engine.data)
    await asyncio.to_thread(scene.engine.start)


# ---- SQLite


async def deletes_rows(scene: Scene) -> None:
    scene.sqlite("DELETE FROM recollect_messages WHERE place & 4294967295 = 2")


def remove_file(scene: Scene) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{scene.file}{suffix}").unlink(missing_ok=True)


async def removes_file(scene: Scene) -> None:
    remove_file(scene)


async def backs_up_file(scene: Scene) -> None:
    source, copy = sqlite3.connect(scene.file), sqlite3.connect(scene.folder / "backup.db")
    source.backup(copy)
    source.close()
    copy.close()


async def restores_file(scene: Scene) -> None:
    remove_file(scene)
    shutil.copy(scene.folder / "backup.db", scene.file)


PLANTS = [
    Plant("FLUSHALL", "redis", "aof-always", flushes, "wiped"),
    Plant("restart without persistence", "redis", "none", restarts, "lost-after-restart"),
    Plant("crash with snapshots only", "redis", "rdb", restarts, "lost-after-restart"),
    Plant("failover with lag", "redis", "aof-always", fails_over, "lost-after-failover", replica=True),
    Plant("replica that stands still", "redis", "aof-always", lags, "stale-replica", False, True),
    Plant(
        "CONFIG SET appendonly no",
        "redis",
        "aof-everysec",
        sets("appendonly", "no"),
        "settings-changed",
        False,
    ),
    Plant(
        "CONFIG SET appendfsync no",
        "redis",
        "aof-always",
        sets("appendfsync", "no"),
        "settings-changed",
        False,
    ),
    Plant("CONFIG SET save ''", "redis", "rdb", sets("save", ""), "settings-changed", False),
    Plant(
        *("maxmemory-policy", "redis", "aof-always", sets("maxmemory-policy", "allkeys-lru")),
        *("settings-changed", False),
    ),
    Plant(
        *("eviction", "redis", "none", evicts, "evicted"),
        before=sets("maxmemory-policy", "allkeys-random"),
    ),
    Plant("DEL by a cleanup job", "redis", "aof-always", deletes_keys, "deleted"),
    Plant("LTRIM by a cleanup job", "redis", "aof-always", trims, "deleted"),
    Plant("TTL changed", "redis", "aof-always", cuts_expiry, "expiry-changed"),
    Plant("a byte changed", "redis", "aof-always", flips, "damaged"),
    Plant("list written back in reverse", "redis", "aof-always", reverses, "reordered"),
    Plant("restore of an old dump", "redis", "aof-always", restores_dump, "rolled-back", before=backs_up),
    Plant("swapped volume", "redis", "aof-always", swaps_volume, "replaced"),
    Plant(
        *("DELETE by a cleanup job", "postgres", "default"),
        *(runs("DELETE FROM recollect_messages WHERE sequence <= 2"), "deleted"),
    ),
    Plant("TRUNCATE", "postgres", "default", runs("TRUNCATE recollect_messages"), "deleted"),
    Plant(
        *("DROP TABLE", "postgres", "default"),
        *(runs("DROP TABLE recollect_meta, recollect_messages"), "wiped"),
    ),
    Plant(
        *("synchronous_commit=off", "postgres", "default"),
        *(
            runs("ALTER DATABASE postgres SET synchronous_commit = off"),
            "settings-changed",
            False,
        ),
    ),
    Plant(
        *("expiry set back", "postgres", "default"),
        *(
            runs("UPDATE recollect_sessions SET expires_at = now() - interval '1 hour'"),
            "expired-early",
            False,
        ),
    ),
    Plant(
        "restore of an old backup", "postgres", "default", restores_cluster, "rolled-back", before=backs_up
    ),
    Plant("failover with lag", "postgres", "default", fails_over, "lost-after-failover", replica=True),
    *(
        Plant(
            f"each fsync takes {seconds:g} s", engine, policy, syncs_in(seconds), "slow", False, recorded=True
        )
        for engine, policy, seconds in (
            ("redis", "aof-always", 1.2),
            ("redis", "aof-always", 4.0),  # with a longer one Redis answers nothing at all
            ("postgres", "default", 1.2),
            ("postgres", "default", 20.0),
        )
    ),
    Plant("DELETE by a cleanup job", "sqlite", "wal-full", deletes_rows, "deleted"),
    Plant("file removed", "sqlite", "wal-full", removes_file, "wiped"),
    Plant("older copy of the file", "sqlite", "wal-full", restores_file, "rolled-back", before=backs_up_file),
]
