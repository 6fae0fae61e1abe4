"""What the engine's settings give, what is added to reach what was asked for, and what is refused."""

import asyncio
from pathlib import Path

import pytest

from recollect import (
    CannotOpen,
    Durability,
    DurabilityUnavailable,
    EngineUnavailable,
    Message,
    NotWritten,
    OutcomeUnknown,
    open_store,
)
from recollect.stores.redis import shard as redis_shard
from recollect.verify.engines import Reconfigurable, Replicated
from recollect.verify.engines.redis import RedisReplica
from recollect.verify.host.waiting import wait_until
from tests.contract.reading import texts
from tests.stores.redis_places import BUILDS, address, free_port, hands_on, started

HELLO = [Message("user", "hello")]


@pytest.mark.parametrize("build", BUILDS)
async def test_each_product_is_told_apart_and_its_policy_read(build: str) -> None:
    with started(build, "aof-everysec") as engine, hands_on(engine) as hands:
        url = address(engine)
        async with open_store(url) as store:
            assert store.durability is Durability.BUFFERED
            assert "one second" in str(store.notice)
        hands.config_set("appendfsync", "always")
        async with open_store(url, durability="fsynced") as store:
            assert (await store.append("s", HELLO)).durability is Durability.FSYNCED
            assert store.notice is None


async def test_the_way_to_switch_the_aof_on_is_the_safe_one() -> None:
    with started("redis@7", "rdb") as engine:
        with pytest.raises(DurabilityUnavailable) as refusal:
            await open_store(address(engine), durability="written")
        for word in ("CONFIG SET appendonly yes", "aof_rewrite_in_progress:0", "redis.conf", "starts empty"):
            assert word in str(refusal.value)
        with hands_on(engine) as hands:
            assert not hands.dbsize(), "a refused open leaves nothing behind"


async def test_an_fsync_that_pauses_is_not_called_an_fsync(tmp_path: Path) -> None:
    config = tmp_path / "redis.conf"
    config.write_text("appendonly yes\nappendfsync always\nno-appendfsync-on-rewrite yes\nsave ''\n")
    with started("redis@7", "custom", config) as engine:
        async with open_store(address(engine)) as store:
            assert store.durability is Durability.WRITTEN
            assert "no-appendfsync-on-rewrite" in str(store.notice)
        with pytest.raises(DurabilityUnavailable, match="CONFIG SET no-appendfsync-on-rewrite no"):
            await open_store(address(engine), durability="fsynced")


async def test_eviction_is_reported_as_a_way_to_lose_memory() -> None:
    with started("redis@7", "aof-always") as engine, hands_on(engine) as hands:
        hands.config_set("maxmemory-policy", "allkeys-lru")
        async with open_store(address(engine)) as store:
            assert "allkeys-lru" in str(store.notice)
            assert "noeviction" in str(store.notice)
        hands.config_set("maxmemory", "100mb")
        async with open_store(address(engine)) as store:
            assert "104,857,600" in str(store.notice)


@pytest.mark.parametrize("build", BUILDS)
async def test_a_service_that_refuses_config_is_taken_as_buffered(build: str) -> None:
    with started(build, "aof-always") as engine, hands_on(engine) as hands:
        hands.execute_command("ACL", "SETUSER", "app", "on", ">secret-word", "~*", "&*", "+@all", "-config")
        url = f"redis://app:secret-word@{engine.endpoint.host}:{engine.endpoint.port}/0"
        async with open_store(url) as store:
            assert (await store.append("s", HELLO)).durability is Durability.BUFFERED
            assert "cannot tell" in str(store.notice)
        with pytest.raises(DurabilityUnavailable, match="CONFIG GET"):
            await open_store(url, durability="written")


async def test_credentials_are_never_told() -> None:
    with started("redis@7", "none") as engine, hands_on(engine) as hands:
        hands.execute_command("ACL", "SETUSER", "app", "on", ">right-word", "~*", "&*", "+@all")
        place = f"{engine.endpoint.host}:{engine.endpoint.port}/0"
        with pytest.raises(CannotOpen) as refusal:
            await open_store(f"redis://app:wrong-word@{place}")
        assert "wrong-word" not in str(refusal.value)
        hands.config_set("requirepass", "default-word")
        with pytest.raises(CannotOpen) as wanted:
            await open_store(f"redis://{place}")
        assert "credentials" in str(wanted.value)
        hands.config_set("requirepass", "")
        engine.kill()
        with pytest.raises(EngineUnavailable) as gone:
            await open_store(f"redis://app:right-word@{place}", timeout_s=1)
        assert "right-word" not in str(gone.value)


async def test_other_settings_after_a_restart_are_noticed() -> None:
    with started("redis@7", "aof-always") as engine:
        assert isinstance(engine, Reconfigurable)
        url = address(engine)
        async with open_store(url, durability="fsynced") as strict, open_store(url) as easy:
            await strict.append("s", HELLO)
            assert (await easy.append("s", HELLO)).durability is Durability.FSYNCED
            engine.reconfigure("aof-everysec")
            with pytest.raises(DurabilityUnavailable, match="appendfsync"):
                await strict.append("s", HELLO)
            assert (await easy.append("s", HELLO)).durability is Durability.BUFFERED
            assert "one second" in str(easy.notice)


# ---- WAITAOF


@pytest.mark.parametrize("build", ["redis@7", "redis@6.2"])
async def test_everysec_without_waitaof_is_refused(build: str) -> None:
    with started(build, "aof-everysec") as engine:
        for asked in ("written", "fsynced"):
            with pytest.raises(DurabilityUnavailable, match="no WAITAOF; CONFIG SET appendfsync always"):
                await open_store(address(engine), durability=asked)


async def test_everysec_needs_time_for_its_acknowledgements() -> None:
    with started("valkey", "aof-everysec") as engine:
        with pytest.raises(DurabilityUnavailable, match="timeout_s at least 3"):
            await open_store(address(engine), durability="fsynced", timeout_s=1)


async def test_everysec_with_an_fsync_that_pauses_is_refused() -> None:
    with started("valkey", "aof-everysec") as engine, hands_on(engine) as hands:
        hands.config_set("no-appendfsync-on-rewrite", "yes")
        with pytest.raises(DurabilityUnavailable, match="CONFIG SET no-appendfsync-on-rewrite no"):
            await open_store(address(engine), durability="fsynced")


async def test_waitaof_follows_the_writes_and_its_counts_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and its counts, on an engine whose answer is taken as honest for this test only."""

    async def believed(*_: object) -> bool:
        return False

    monkeypatch.setattr(redis_shard, "answers_waitaof_early", believed)
    with started("valkey", "aof-everysec") as engine, hands_on(engine) as hands:
        async with open_store(address(engine), durability="fsynced", timeout_s=3) as store:
            receipt = await store.append("s", HELLO, turn="t")
            assert receipt.durability is Durability.FSYNCED
            hands.config_resetstat()
            assert await store.append("s", HELLO, turn="t") == receipt
            assert hands.info("commandstats")["cmdstat_waitaof"]["calls"] == 1
            hands.config_set("appendfsync", "no")  # now nothing is ever fsynced: WAITAOF runs out of time
            with pytest.raises(OutcomeUnknown, match="did not fsync"):
                await store.append("s", HELLO, turn="t2")
            hands.config_set("appendfsync", "always")
            assert (await store.append("s", HELLO, turn="t2")).last == 2
            assert await store.append("s", HELLO, turn="t") == receipt
            assert len(await texts(store, "s")) == 2


# ---- replicas


@pytest.mark.parametrize("build", BUILDS)
async def test_replicas_are_waited_for_and_counted(build: str) -> None:
    with started(build, "aof-always") as engine:
        assert isinstance(engine, Replicated)
        url = address(engine)
        with pytest.raises(DurabilityUnavailable, match="1 replica asked for, 0 connected"):
            await open_store(url, replicas=1)
        replica = engine.replica()
        async with open_store(url, replicas=1, durability="fsynced", timeout_s=1) as store:
            receipt = await store.append("s", HELLO, turn="t1")
            assert (receipt.replicas, receipt.durability) == (1, Durability.FSYNCED)
            replica.pause_replay()
            with pytest.raises(OutcomeUnknown, match="0 of 1 replica"):
                await store.append("s", HELLO, turn="t2")
            with pytest.raises(OutcomeUnknown, match="0 of 1 replica"):
                await store.append("s", HELLO, turn="t1")  # its copy is not there to be counted again
            replica.resume_replay()
            replica.wait_caught_up()
            assert (await store.append("s", HELLO, turn="t2")).last == 2
            assert await store.append("s", HELLO, turn="t1") == receipt
            await store.forget("s")
            assert await store.history("s") == []


async def test_a_new_store_waits_for_the_replicas_that_its_identity_needs() -> None:
    with started("redis@7", "none") as engine, hands_on(engine) as hands:
        url = address(engine)
        hands.config_set("min-replicas-to-write", "1")
        with pytest.raises(EngineUnavailable, match="too few replicas are connected"):
            await open_store(url, timeout_s=0.2)

        async def come_back() -> None:
            await asyncio.sleep(0.3)
            hands.config_set("min-replicas-to-write", "0")

        coming = asyncio.create_task(come_back())
        async with open_store(url, timeout_s=30) as store:
            assert coming.done()
            identity = store.identity
        hands.config_set("min-replicas-to-write", "1")
        async with open_store(url, timeout_s=0.2) as store:
            assert store.identity == identity, "a store that has one needs none"


async def test_reads_go_on_without_replicas_and_writes_when_they_are_back() -> None:
    with started("redis@7", "aof-always") as engine, hands_on(engine) as hands:
        assert isinstance(engine, Replicated)

        def connected(count: int) -> None:
            wait_until(
                lambda: hands.info("replication")["connected_slaves"] == count, 30, f"{count} replicas"
            )

        replica = engine.replica()
        async with open_store(address(engine), replicas=1) as store:
            await store.append("s", HELLO, turn="t1")
            replica.pause_replay()
            connected(0)
            hands.client_kill_filter(_type="normal", skipme=True)
            assert len(await store.history("s")) == 1
            with pytest.raises(DurabilityUnavailable, match="1 replica asked for, 0 connected"):
                await store.append("s", HELLO, turn="t2")
            assert [name async for name in store.sessions()] == ["s"]
            assert await store.position("s") == 1
            replica.resume_replay()
            connected(1)
            assert (await store.append("s", HELLO, turn="t2")).replicas == 1
            assert len(await store.history("s")) == 2


@pytest.mark.parametrize("build", BUILDS)
async def test_a_retry_is_not_acknowledged_before_the_copies_are_there(build: str) -> None:
    """On a new connection: an engine may look only at what that connection itself has written."""
    with started(build, "aof-always") as engine:
        assert isinstance(engine, Replicated)
        replica = engine.replica()
        assert isinstance(replica, RedisReplica)
        url = address(engine)
        async with open_store(url, replicas=1, timeout_s=1) as store:
            await store.append("s", HELLO, turn="t1")
            replica.engine.pause()
            with pytest.raises(OutcomeUnknown, match="0 of 1 replica"):
                await store.append("s", HELLO, turn="t2")
            with hands_on(engine) as hands:
                hands.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(OutcomeUnknown, match="0 of 1 replica"):
                await store.append("s", HELLO, turn="t2")
            replica.engine.resume()
            assert (await store.append("s", HELLO, turn="t2")).replicas == 1


async def test_an_aof_that_is_just_being_switched_on_is_not_trusted_yet() -> None:
    with started("redis@7", "rdb") as engine, hands_on(engine) as hands:
        hands.mset({f"filler-{number}": "x" for number in range(50)})
        hands.config_set("rdb-key-save-delay", 100_000)
        hands.config_set("appendfsync", "always")
        hands.config_set("appendonly", "yes")
        with pytest.raises(DurabilityUnavailable, match="first rewrite has not ended"):
            await open_store(address(engine), durability="fsynced")
        async with open_store(address(engine)) as store:
            assert (await store.append("s", HELLO)).durability is Durability.BUFFERED
            assert "first rewrite" in str(store.notice)


async def test_a_replica_is_not_opened_as_a_store() -> None:
    with started("redis@7", "none") as engine:
        assert isinstance(engine, Replicated)
        replica = engine.replica()
        url = replica.endpoint.socket_url
        assert url is not None
        with pytest.raises(CannotOpen, match="replica, which takes no writes"):
            await open_store(url)
        async with open_store(address(engine)) as store:
            with hands_on(engine) as hands:
                hands.config_set("masteruser", replica.endpoint.user)
                hands.config_set("masterauth", replica.endpoint.password)
                hands.execute_command("REPLICAOF", replica.endpoint.host, replica.endpoint.port)
                try:
                    with pytest.raises(NotWritten, match="primary"):
                        await store.append("s", HELLO)
                finally:
                    hands.execute_command("REPLICAOF", "NO", "ONE")


async def test_a_node_of_a_cluster_is_not_opened_as_a_server(tmp_path: Path) -> None:
    """It would refuse two of three sessions for ever, as safe to retry."""
    config = tmp_path / "cluster.conf"
    # 10,000 above its own may not exist.
    config.write_text(f"cluster-enabled yes\ncluster-port {free_port()}\n")
    with started("redis@7", "custom", config) as engine:
        with pytest.raises(CannotOpen, match="one node of a cluster"):
            await open_store(address(engine))
