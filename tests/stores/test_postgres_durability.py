"""Durability and replicas: what the settings give, what is reached, and what changes under an open store."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from recollect import (
    CannotOpen,
    Damaged,
    Durability,
    DurabilityUnavailable,
    Message,
    NotWritten,
    OutcomeUnknown,
    Store,
    open_store,
)
from recollect.store import Options
from recollect.stores.postgres import schema
from recollect.stores.postgres.durability import PostgresSettings, reach
from recollect.stores.postgres.store import PostgresStore
from recollect.verify.engines.postgres import PostgresEngine, PostgresReplica
from tests.stores.postgres_place import Place, places, started, until

DEFAULT = PostgresSettings(True, True, "", "on", 0)


def said(text: str = "hello") -> list[Message]:
    return [Message("user", text)]


@pytest.mark.parametrize(
    ("settings", "durability", "says"),
    [
        (DEFAULT, Durability.FSYNCED, None),
        (replace(DEFAULT, synchronous_commit="local"), Durability.FSYNCED, None),
        (replace(DEFAULT, synchronous_commit="off"), Durability.BUFFERED, "synchronous_commit = on"),
        (replace(DEFAULT, fsync=False), Durability.WRITTEN, "fsync = on"),
        (replace(DEFAULT, fsync=False, synchronous_commit="off"), Durability.BUFFERED, "fsync = on"),
        (replace(DEFAULT, full_page_writes=False), Durability.WRITTEN, "full_page_writes"),
    ],
)
def test_settings_give_a_durability(
    settings: PostgresSettings, durability: Durability, says: str | None
) -> None:
    reached = reach(settings, Options())
    assert reached.durability is durability
    assert (reached.notice is None) == (says is None)
    assert says is None or says in str(reached.notice)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_what_no_transaction_can_set_is_refused_by_name(setting: str) -> None:
    settings = replace(DEFAULT, fsync=setting != "fsync", full_page_writes=setting != "full_page_writes")
    assert reach(settings, Options(durability=Durability.WRITTEN)).durability is Durability.WRITTEN
    with pytest.raises(DurabilityUnavailable, match=f"`{setting} = on`"):
        reach(settings, Options(durability=Durability.FSYNCED))


@pytest.mark.parametrize(
    ("names", "waited_for"),
    [
        ("", 0),
        ("*", 1),
        ("a, b", 1),
        ("2 (a, b, c)", 2),
        ("FIRST 3 (a, b, c)", 3),
        ("any 2(*)", 2),
        ('"2 (x)"', 1),
    ],
)
def test_standby_names_say_how_many_are_waited_for(names: str, waited_for: int) -> None:
    settings = replace(DEFAULT, standby_names=names, standbys_connected=9)
    assert reach(settings, Options()).replicas == waited_for
    local = replace(settings, synchronous_commit="local")
    assert reach(local, Options()).replicas == 0
    if waited_for:
        reached = reach(local, Options(replicas=waited_for))
        assert (reached.replicas, reached.commit_mode) == (waited_for, "on")
    with pytest.raises(DurabilityUnavailable, match="synchronous_standby_names"):
        reach(settings, Options(replicas=waited_for + 1))


async def test_fsynced_is_reached_although_the_role_commits_asynchronously(place: Place) -> None:
    role = f"hasty_{place.schema}"
    await place.direct.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
    await place.direct.execute(f"ALTER ROLE {role} SET synchronous_commit = off")
    url = place.url_as(role)
    async with open_store(url) as hasty, open_store(url, durability="fsynced") as sure:
        assert (await hasty.append("s", said())).durability is Durability.BUFFERED
        assert (await sure.append("s", said())).durability is Durability.FSYNCED
        assert hasty.notice is not None
        assert sure.notice is None
        assert await _commit_modes(sure, role) == {"on"}
        # A pooler may hand out a session that nobody prepared: the append itself must see to it.
        await _use_session(sure, "RESET synchronous_commit")
        assert await _commit_modes(sure, role) == {"off"}
        await place.direct.execute("CREATE TABLE seen (mode text)")
        await place.direct.execute(
            "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
        )
        await place.direct.execute(
            "CREATE CONSTRAINT TRIGGER see AFTER INSERT ON recollect_messages "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()"
        )
        await sure.append("s", said(), turn="t")
        await hasty.append("s", said())
        assert [row[0] for row in await place.direct.fetch("SELECT mode FROM seen")] == ["on", "off"]


@pytest.mark.parametrize("with_expect", [False, True])
async def test_a_retry_is_as_durable_as_it_says(place: Place, with_expect: bool) -> None:
    """The first append of the turn is committed asynchronously; its retry must not answer before it is flushed."""
    role = f"hasty_{place.schema}"
    await place.direct.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
    await place.direct.execute(f"ALTER ROLE {role} SET synchronous_commit = off")
    async with open_store(place.url_as(role)) as hasty, open_store(place.url) as sure:
        await sure.append("s", said())
        for n in range(20):
            expect = n + 1 if with_expect else None
            await hasty.append("s", said(), turn=f"t{n}", expect=expect)
            written = await place.direct.fetchval("SELECT pg_current_wal_insert_lsn()")
            receipt = await sure.append("s", said(), turn=f"t{n}", expect=expect)
            assert receipt.durability is Durability.FSYNCED
            assert receipt.last == n + 2
            assert await place.direct.fetchval("SELECT pg_current_wal_flush_lsn() >= $1::pg_lsn", written)


# ---- with a standby


pytestmark = pytest.mark.xdist_group("postgres-pair")


@pytest.fixture(scope="module")
def primary_and_standby() -> Iterator[tuple[PostgresEngine, PostgresReplica]]:
    engine = started()
    try:
        yield engine, engine.replica()
    finally:
        engine.close()


@pytest.fixture
async def pair(
    primary_and_standby: tuple[PostgresEngine, PostgresReplica],
) -> AsyncIterator[tuple[Place, PostgresReplica]]:
    """A schema of its own, replicated; what the test did to the standby is undone afterwards."""
    engine, replica = primary_and_standby
    async for place in places(engine):
        yield place, replica
        if not replica.engine.alive():
            replica.engine.restart()
        await _set_standby_names(place, "", None)


def replica_url(place: Place, replica: PostgresReplica) -> str:
    return f"{replica.endpoint.socket_url}&search_path={place.schema}"


async def served(replica: PostgresReplica) -> int:
    """How many sessions on the replica have last run the statement that reads a history."""
    rows = replica.engine.ask(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%LATERAL%' AND pid <> pg_backend_pid()"
    )
    return int(rows[0][0] or 0)


async def count(store: Store, session: str) -> int:
    return len(await store.history(session))


async def test_a_replica_serves_only_what_it_has(pair: tuple[Place, PostgresReplica]) -> None:
    place, replica = pair
    async with open_store(place.url, read_url=replica_url(place, replica), timeout_s=5) as store:
        assert isinstance(store, PostgresStore)
        await store.append("s", said("one"))
        replica.wait_caught_up()
        on_primary = _count_statements(store, "_pool")
        on_replica = _count_statements(store, "_replica")
        assert await count(store, "s") == 1
        assert await served(replica) == 1
        assert (on_primary, on_replica) == ([schema.SESSION], [schema.HISTORY_REPLICA])

        replica.pause_replay()
        for n in range(2, 12):
            await store.append("s", said(str(n)))
            assert await count(store, "s") == n, "a stale memory"
        assert await store.history("never") == []
        await store.forget("s")
        assert await store.history("s") == []
        replica.resume_replay()
        replica.wait_caught_up()
        await store.append("s", said("new"))
        replica.wait_caught_up()
        on_primary.clear()
        assert await count(store, "s") == 1
        assert schema.HISTORY not in on_primary

        replica.kill()
        on_primary.clear()
        assert await count(store, "s") == 1
        assert schema.HISTORY in on_primary


async def test_a_promoted_replica_is_no_replica() -> None:
    engine = started()
    try:
        replica = engine.replica()
        async for place in places(engine):
            async with open_store(place.url, read_url=replica_url(place, replica), timeout_s=5) as store:
                assert isinstance(store, PostgresStore)
                await store.append("s", said("one"))
                replica.wait_caught_up()
                assert await count(store, "s") == 1
                replica.promote()
                replica.engine.ask(f"UPDATE {place.schema}.recollect_sessions SET last = 100")
                assert await count(store, "s") == 1
                assert not isinstance((await store.history("s"))[0].message, Damaged)
    finally:
        engine.close()


async def test_a_slow_replica_does_not_hold_up_reading(pair: tuple[Place, PostgresReplica]) -> None:
    place, replica = pair
    async with open_store(place.url, read_url=replica_url(place, replica), timeout_s=1.0) as store:
        await store.append("s", said("one"))
        replica.wait_caught_up()
        assert await count(store, "s") == 1
        replica.engine.pause()
        try:
            assert await count(store, "s") == 1
        finally:
            replica.engine.resume()


async def test_a_replica_of_another_store_is_not_read(
    pair: tuple[Place, PostgresReplica], place: Place
) -> None:
    replicated, replica = pair
    async with open_store(replicated.url) as elsewhere:
        await elsewhere.append("s", said("not ours"))
        replica.wait_caught_up()
    async with open_store(place.url, read_url=replica_url(replicated, replica)) as store:
        await store.append("s", said("ours"))
        (found,) = await store.history("s")
        assert isinstance(found.message, Message)
        assert found.message.text == "ours"


async def test_a_standby_is_not_opened_for_writing(pair: tuple[Place, PostgresReplica]) -> None:
    place, replica = pair
    with pytest.raises(CannotOpen, match="standby"):
        await open_store(replica_url(place, replica))


async def test_receipts_count_the_standbys_waited_for(pair: tuple[Place, PostgresReplica]) -> None:
    place, replica = pair
    async with open_store(place.url) as store:
        assert (await store.append("s", said())).replicas == 0
        with pytest.raises(DurabilityUnavailable, match="synchronous_standby_names"):
            await open_store(place.url, replicas=1)
        await _set_standby_names(place, "*", replica)
        assert (await store.append("s", said(), turn="t")).replicas == 1, "settings changed under the store"
        async with open_store(place.url, replicas=1) as sure:
            assert (await sure.append("s", said())).replicas == 1
            await _set_standby_names(place, "", None)
            with pytest.raises(NotWritten, match="synchronous_standby_names"):
                await sure.append("s", said("refused"))
            assert await count(sure, "s") == 3
            await _set_standby_names(place, "*", replica)
            assert (await sure.append("s", said())).replicas == 1
        replica.kill()

        async def gone() -> bool:
            return not await place.direct.fetchval("SELECT count(*) FROM pg_stat_replication")

        await until(gone, "the primary noticed")
        with pytest.raises(DurabilityUnavailable, match="0 synchronous standbys are connected"):
            await open_store(place.url, replicas=1)


async def test_an_operator_who_ends_the_wait_for_a_standby_does_not_get_a_receipt(
    pair: tuple[Place, PostgresReplica],
) -> None:
    place, replica = pair
    await _set_standby_names(place, "*", replica)
    async with open_store(place.url, replicas=1) as store:
        await store.append("s", said())
        replica.kill()
        append = asyncio.create_task(store.append("s", said(), turn="t"))

        async def waiting() -> bool:
            return bool(
                await place.direct.fetchval(
                    "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                )
            )

        await until(waiting, "the append waits for the standby")
        with pytest.raises(OutcomeUnknown, match="standbys"):
            await append


async def _set_standby_names(place: Place, names: str, replica: PostgresReplica | None) -> None:
    await place.direct.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    await place.direct.execute("SELECT pg_reload_conf()")

    async def effective() -> bool:
        # New sessions have it at once, old ones when they next become idle; the standby after its next message.
        states = {row[0] for row in await place.direct.fetch("SELECT sync_state FROM pg_stat_replication")}
        shown = await place.direct.fetchval("SHOW synchronous_standby_names")
        return shown == names and (replica is None or states == {"sync"})

    await until(effective, f"synchronous_standby_names = {names!r} in effect")


async def _commit_modes(store: Store, role: str) -> set[str]:
    rows = await _use_session(store, "SHOW synchronous_commit")
    return {row[0] for row in rows}


async def _use_session(store: Store, statement: str) -> list[tuple[str]]:
    """Runs a statement on each of the store's idle connections."""
    assert isinstance(store, PostgresStore)
    return [tuple(row) for connection, _ in store._pool._idle for row in await connection.fetch(statement)]


def _count_statements(store: PostgresStore, pool_name: str) -> list[str]:
    """The statements sent to one of the store's pools from now on."""
    sent: list[str] = []
    fetch = store._fetch
    pool = getattr(store, pool_name)

    async def counted(used: object, deadline: float, statement: str, *arguments: object) -> object:
        if used is pool:
            sent.append(statement)
        return await fetch(used, deadline, statement, *arguments)  # type: ignore[arg-type]

    store._fetch = counted  # type: ignore[method-assign,assignment]
    return sent
