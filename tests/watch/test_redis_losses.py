"""Silent losses on live Redis servers, each told by its name; and the same doings without a loss, which are not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recollect import Message, open_store
from recollect.doctor import Diagnosis, examine
from recollect.verify import engines
from recollect.verify.engines import Engine
from recollect.watch import canary
from tests.stores.redis_places import hands_on, new_prefix, started
from tests.watch.beside import beside, door


@pytest.fixture
def place(engine_of: Callable[[str], Engine]) -> tuple[Engine, str, str]:
    """A namespace on the engine that all tests share."""
    engine, prefix = engine_of("redis"), new_prefix()
    return engine, f"{engine.endpoint.socket_url}&prefix={prefix}", prefix


def keys(hands: Any, prefix: str, kind: str) -> list[bytes]:
    return sorted(hands.scan_iter(f"{prefix}:*:{kind}"))


def deletes(hands: Any, prefix: str) -> None:
    hands.delete(*keys(hands, prefix, "m"))


def deletes_all_of_it(hands: Any, prefix: str) -> None:
    hands.delete(*hands.scan_iter(f"{prefix}:*"))


def trims(hands: Any, prefix: str) -> None:
    hands.ltrim(keys(hands, prefix, "m")[0], -2, -1)


def expires(hands: Any, prefix: str) -> None:
    for key in keys(hands, prefix, "m"):
        hands.expire(key, 300)


def persists(hands: Any, prefix: str) -> None:
    for key in keys(hands, prefix, "m"):
        hands.persist(key)


def reverses(hands: Any, prefix: str) -> None:
    key = keys(hands, prefix, "m")[0]
    elements = hands.lrange(key, 0, -1)
    for place, element in enumerate(reversed(elements)):
        hands.lset(key, place, element)


def flips(hands: Any, prefix: str) -> None:
    key = keys(hands, prefix, "m")[0]
    hands.lset(key, 1, hands.lindex(key, 1).replace(b"canary", b"canari"))


def counts_back(hands: Any, prefix: str) -> None:
    """As a restored session is: fewer messages, and the counter of then."""
    hands.ltrim(keys(hands, prefix, "m")[0], 0, 1)
    hands.hset(keys(hands, prefix, "c")[0], "last", 2)


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (deletes, "deleted"),
        (deletes_all_of_it, "wiped"),
        (trims, "deleted"),
        (expires, "expiry-changed"),
        (persists, "expiry-changed"),
        (reverses, "reordered"),
        (flips, "damaged"),
        (counts_back, "rolled-back"),
    ],
)
async def test_what_others_do(
    place: tuple[Engine, str, str], tmp_path: Path, harm: Callable[[Any, str], None], name: str
) -> None:
    engine, url, prefix = place
    async with beside(url, tmp_path / "memory.db") as watched:
        with hands_on(engine) as hands:
            harm(hands, prefix)
        assert [alarm.name for alarm in await watched.told()] == [name]
        await watched.heard(3)  # it is told once


async def test_a_setting_that_is_not_told_has_not_changed(
    engine_of: Callable[[str], Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is loading its data does not say whether its log is on."""
    url = engine_of("redis").endpoint.socket_url
    assert url is not None
    whole = await examine(url)
    without = {name: value for name, value in whole.settings.items() if name != "aof_enabled"}
    answers = [whole.settings, without, whole.settings, {**without, "appendfsync": "no"}]

    async def examined(*_: object) -> Diagnosis:
        return msgspec.structs.replace(whole, settings=answers.pop(0))

    async with beside(url, tmp_path / "memory.db") as watched:
        monkeypatch.setattr(canary, "examine", examined)
        assert [await watched.canary.look_at_settings() for _ in range(3)] == [None] * 3
        alarm = await watched.canary.look_at_settings()
        assert alarm is not None
        assert alarm.sentence.startswith("appendfsync: ")
        assert "aof_enabled" not in alarm.sentence


@pytest.mark.parametrize(
    ("setting", "value"),
    [("appendfsync", "no"), ("maxmemory-policy", "allkeys-lru"), ("save", "60 1"), ("appendonly", "no")],
)
async def test_settings_that_change(tmp_path: Path, setting: str, value: str) -> None:
    with started("redis@7", "aof-everysec") as engine:
        url = engine.endpoint.socket_url
        assert url is not None
        async with beside(url, tmp_path / "memory.db") as watched:
            await watched.canary.look_at_settings()
            with hands_on(engine) as hands:
                hands.config_set("maxclients", 500)  # no setting for durability
                await watched.heard()
                hands.config_set(setting, value)
            [alarm] = await watched.told()
            assert alarm.name == "settings-changed"
            assert setting in alarm.sentence


async def test_a_flush(tmp_path: Path) -> None:
    with started("redis@7", "aof-always") as engine:
        assert engine.endpoint.socket_url is not None
        async with beside(engine.endpoint.socket_url, tmp_path / "memory.db") as watched:
            with hands_on(engine) as hands:
                hands.flushdb(asynchronous=True)
                hands.set("another", "application's")
            [alarm] = await watched.told()
            assert (alarm.name, alarm.lost >= 5) == ("wiped", True)
            await watched.heard(3)


async def test_eviction(tmp_path: Path) -> None:
    with started("redis@7", "none") as engine:
        assert engine.endpoint.socket_url is not None
        async with beside(engine.endpoint.socket_url, tmp_path / "memory.db") as watched:
            with hands_on(engine) as hands:
                hands.config_set("maxmemory-policy", "allkeys-random")
                await watched.told()  # the setting
                hands.config_set("maxmemory", hands.info("memory")["used_memory"] + 500_000)
                [messages] = hands.keys("*:m")
                number = 0
                while hands.exists(messages):  # chosen at random
                    number += 1
                    hands.set(f"filler-{number}", "x" * 1_000)
                hands.config_set("maxmemory", 0)
            names = [alarm.name for alarm in await watched.told()]
            assert "evicted" in names


async def test_a_restart_without_persistence_and_one_with(tmp_path: Path) -> None:
    for policy, names in (("none", ["lost-after-restart"]), ("aof-always", [])):
        with started("redis@7", policy) as engine:
            assert engine.endpoint.socket_url is not None
            async with beside(engine.endpoint.socket_url, tmp_path / f"{policy}.db") as watched:
                await watched.canary.look_at_settings()
                engine.kill()
                engine.start()
                if names:
                    assert [alarm.name for alarm in await watched.told()] == names
                await watched.heard(3)


async def test_an_older_state_that_is_restored_and_a_swapped_volume(tmp_path: Path) -> None:
    with started("redis@7", "aof-always") as engine, started("redis@7", "aof-always") as other:
        assert engine.endpoint.socket_url is not None
        assert other.endpoint.socket_url is not None
        async with open_store(other.endpoint.socket_url) as store:
            await store.append("s", [Message("user", "of another store")])
        other.stop()
        assert engine.data is not None
        assert other.data is not None
        async with beside(engine.endpoint.socket_url, tmp_path / "memory.db") as watched:
            await watched.canary.look_at_settings()
            engine.stop()
            shutil.copytree(engine.data, tmp_path / "backup")
            engine.start()
            await watched.heard(5)  # the healthy twin: a stop and a start
            engine.stop()
            restore(tmp_path / "backup", engine.data)
            engine.start()
            assert watched.memory.window_s == 0
            # Older than what clocks may differ.
            for said in watched.memory.said_in(watched.canary.sessions[0]):
                watched.memory.note_said(said._replace(acknowledged_at=said.acknowledged_at - 60))
            assert [alarm.name for alarm in await watched.told()] == ["rolled-back"]
            await watched.heard(3)
            engine.stop()
            restore(other.data, engine.data)
            engine.start()
            assert [alarm.name for alarm in await watched.told()] == ["replaced"]
            await watched.heard(3)


def restore(backup: Path, data: Path) -> None:
    for path in data.iterdir():
        if path.name.startswith(("appendonly", "dump")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in backup.iterdir():
        if path.name.startswith(("appendonly", "dump")):
            shutil.copytree(path, data / path.name) if path.is_dir() else shutil.copy(path, data)


@pytest.mark.parametrize("lag", [True, False])
async def test_a_failover_with_and_without_lag_and_a_stale_replica(tmp_path: Path, lag: bool) -> None:
    with started("redis@7", "aof-always") as engine:
        assert isinstance(engine, engines.Replicated)
        replica = engine.replica()
        primary = [engine.endpoint]
        async with door(lambda: (primary[0].host, primary[0].port)) as port:
            address = engine.endpoint.url.rpartition("@")[0]
            url = f"{address}@127.0.0.1:{port}/0"
            canary = {"replica": replica.endpoint.url, "stale_s": 600.0}
            async with beside(url, tmp_path / "memory.db", canary=canary) as watched:
                while (
                    watched.memory.heard_at() < (await facts_of(watched, replica.endpoint.url)).started_at + 3
                ):
                    await watched.heard()
                if lag:
                    replica.pause_replay()
                    watched.canary.stale_s = 1.0
                    assert [alarm.name for alarm in await watched.told()] == ["stale-replica"]
                    watched.canary.stale_s = 600.0
                    replica.resume_replay()
                    replica.wait_caught_up()
                    await watched.heard()
                    assert {"event": "over", "name": "stale-replica"}.items() <= watched.events[-1].items()
                    replica.pause_replay()
                    await watched.rounds(3)
                else:
                    replica.wait_caught_up()
                watched.canary.replica = None
                engine.kill()
                primary[0] = replica.promote()
                if lag:
                    names = [alarm.name for alarm in await watched.told()]
                    assert names == ["lost-after-failover"]
                await watched.heard(3)
        replica.close()


async def test_a_replica_that_is_silent_beside_a_primary_that_answers(tmp_path: Path) -> None:
    with started("redis@7", "aof-always") as engine:
        assert isinstance(engine, engines.Replicated)
        replica = engine.replica()
        behind: list[tuple[str | None, int | None]] = [(replica.endpoint.host, replica.endpoint.port)]
        async with door(lambda: behind[0]) as port:
            address = f"{engine.endpoint.url.rpartition('@')[0]}@127.0.0.1:{port}/0"
            canary = {"replica": address, "stale_s": 600.0}
            async with beside(engine.endpoint.url, tmp_path / "memory.db", canary=canary) as watched:
                behind[0] = ("127.0.0.1", 1)
                await watched.canary._let_go()
                await watched.heard(3)  # it may be restarting
                watched.watch.patience_s = 0.0
                [alarm] = await watched.told()
                assert alarm.name == "unreachable"
                assert alarm.sentence.startswith("the replica does not answer: ")
                await watched.heard(3)  # once
                behind[0] = (replica.endpoint.host, replica.endpoint.port)
                await watched.heard()
                assert {"event": "over", "name": "unreachable"}.items() <= watched.events[-1].items()
        replica.close()


async def facts_of(watched: Any, url: str) -> Any:
    return await (await watched.canary._source(url)).facts()


async def test_writes_that_wait_while_reads_are_answered(
    place: tuple[Engine, str, str], tmp_path: Path
) -> None:
    engine, url, _ = place
    async with beside(url, tmp_path / "memory.db", canary={"timeout_s": 2.0}) as watched:
        watched.watch.slow_s = 0.2
        with hands_on(engine) as hands:
            hands.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
            try:
                [alarm] = await watched.told()
            finally:
                hands.execute_command("CLIENT", "UNPAUSE")
        assert alarm.name == "slow"
        assert "0.2 s are fine" in alarm.sentence
        assert "more than" in alarm.sentence
        watched.watch.slow_s = 60.0  # the healthy twin: as quick as it may be
        watched.canary._timeout_s = 30.0
        await watched.heard()
        assert watched.events[-1].items() >= {"event": "over", "name": "slow"}.items()
