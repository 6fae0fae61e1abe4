"""Turns that a release without fingerprints has stored, and such a release beside this one."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Message, Store, TurnReused, open_store
from recollect.stores.postgres import schema as postgres_schema
from recollect.stores.postgres.migrations.versions import r0001_memory as first_schema
from recollect.verify.engines import Engine
from tests.contract.reading import texts
from tests.stores.postgres_place import Place
from tests.stores.redis_places import BUILDS, address, hands_on, new_prefix, started

OLDER = Path(__file__).parent.parent / "golden" / "older"
SAID = [Message("user", "I am Xiao Li"), Message("assistant", "hello")]


async def check_older_session(store: Store) -> None:
    """Its turns are retries, with whatever content, as they were; from then on turns are compared."""
    assert await texts(store, "s") == ["I am Xiao Li", "hello", "bye"]
    for messages in (SAID, [Message("user", "other")]):
        receipt = await store.append("s", messages, turn="t1")
        assert (receipt.first, receipt.last) == (1, 2)
    assert (await store.append("s", [Message("user", "new")], turn="t3")).last == 4
    with pytest.raises(TurnReused):
        await store.append("s", [Message("user", "newer")], turn="t3")
    assert len(await texts(store, "s")) == 4
    await check_changes(store)


async def check_changes(store: Store) -> None:
    """What an older release stored can be changed, and nobody makes up when that was."""
    await store.retract("s", 2, expect=4)
    assert await texts(store, "s") == ["I am Xiao Li", "bye", "new"]
    assert await texts(store, "s", last=2) == ["bye", "new"]
    await store.annotate("s", {"a": 1})
    found = await store.describe("s")
    assert (found.created, found.position, found.metadata) == (None, 6, {"a": 1})
    assert [name async for name in store.sessions(updated_after=0)] == ["s"]
    await store.fork("s", "copy", upto=3)
    assert await texts(store, "copy") == ["I am Xiao Li", "bye"]
    await store.replace("s", [Message("user", "summary")])
    assert await texts(store, "s") == ["summary"]


# ---- SQLite


def older_file(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript((OLDER / "sqlite.sql").read_text())
    return connection


async def test_a_file_of_an_older_release(tmp_path: Path) -> None:
    older_file(tmp_path / "memory.db").close()
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        await check_older_session(store)


async def test_an_older_release_on_the_same_file(tmp_path: Path) -> None:
    """Its statements still fit, and a fingerprint whose turn it pruned is neither kept for ever nor mistaken."""
    path = tmp_path / "memory.db"
    beside = older_file(path)
    async with open_store(f"sqlite:///{path}", turns_kept=5) as store:
        for n in range(20):
            await store.append("s", [Message("user", str(n))], turn=f"n{n}")
            number, last = beside.execute(
                "SELECT max(number) + 1, max(last) + 1 FROM recollect_turns"
            ).fetchone()
            record = beside.execute("SELECT record FROM recollect_messages").fetchone()[0]
            beside.execute(
                "INSERT INTO recollect_messages (place, record) VALUES (?, ?)", (1 << 32 | last, record)
            )
            beside.execute(
                "INSERT INTO recollect_turns VALUES (?, ?, ?, ?, ?)",
                (1, number, f"o{n}".encode(), last, last),
            )
            beside.execute("DELETE FROM recollect_turns WHERE session = 1 AND number <= ?", (number - 5,))
        await store.append("s", [Message("user", "last")], turn="last")
        assert (await store.append("s", [Message("user", "anything")], turn="o19")).last == 43
        with pytest.raises(TurnReused):
            await store.append("s", [Message("user", "anything")], turn="n19")
        assert beside.execute("SELECT count(*) FROM recollect_fingerprints").fetchone()[0] <= 5
    beside.close()


async def test_fingerprints_in_the_file_are_bounded(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db", turns_kept=10) as store:
        for n in range(60):
            await store.append("s", [Message("user", str(n))], turn=str(n))
            await store.append("other", [Message("user", str(n))], turn=str(n))
    connection = sqlite3.connect(tmp_path / "memory.db")
    counts = connection.execute("SELECT session, count(*) FROM recollect_fingerprints GROUP BY 1").fetchall()
    assert counts == [(1, 10), (2, 10)]
    connection.close()


# ---- Redis and Valkey


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


def older_keys(engine: Engine) -> str:
    """The keys of the older release under a prefix of their own."""
    prefix = new_prefix()
    with hands_on(engine) as hands:
        for name, key, *values in json.loads((OLDER / "redis.json").read_text()):
            hands.execute_command(name, key.replace("recollect", prefix, 1), *values)
    return prefix


async def test_keys_of_an_older_release(engine: Engine) -> None:
    async with open_store(address(engine, older_keys(engine))) as store:
        await check_older_session(store)


async def test_an_older_release_on_the_same_keys(engine: Engine) -> None:
    """What its script does with turns, done by hand: add without a fingerprint, and prune only the sorted set."""
    prefix = older_keys(engine)
    with hands_on(engine) as hands:
        async with open_store(address(engine, prefix), turns_kept=5) as store:
            for n in range(20):
                last = (await store.append("s", [Message("user", str(n))], turn=f"n{n}")).last + 1
                hands.rpush(f"{prefix}:{{ss}}:m", f"{last} {{}}")
                hands.hset(f"{prefix}:{{ss}}:c", "last", last)
                hands.zadd(f"{prefix}:{{ss}}:t", {f"o{n}": last * 16384})
                hands.zremrangebyrank(f"{prefix}:{{ss}}:t", 0, -6)
            await store.append("s", [Message("user", "last")], turn="last")
            assert (await store.append("s", [Message("user", "anything")], turn="o19")).last == 43
            with pytest.raises(TurnReused):
                await store.append("s", [Message("user", "anything")], turn="n19")
            assert hands.hlen(f"{prefix}:{{ss}}:f") <= 5


async def test_fingerprints_in_the_hash_are_bounded_and_expire_with_the_turns(engine: Engine) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        async with open_store(address(engine, prefix), turns_kept=10) as store:
            for n in range(60):
                await store.append("s", [Message("user", str(n))], turn=str(n))
        assert hands.hlen(f"{prefix}:{{ss}}:f") == hands.zcard(f"{prefix}:{{ss}}:t") == 10


async def test_a_key_of_another_type_is_told_before_anything_is_written(engine: Engine) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        hands.set(f"{prefix}:{{ss}}:f", "not a hash")
        async with open_store(address(engine, prefix)) as store:
            with pytest.raises(Exception, match="WRONGTYPE"):
                await store.append("s", SAID, turn="t")
            assert await store.history("s") == []


# ---- PostgreSQL


async def older_schema(place: Place) -> None:
    """As the first revision made it, with two turns that its function stored."""
    schema = first_schema
    for statement in (*schema.TABLES, schema.PRUNE_TURNS, schema.APPEND, schema.FREE, schema.FORGET):
        await place.direct.execute(statement)
    await place.direct.execute(
        "CREATE TABLE recollect_version (version_num varchar(32) NOT NULL PRIMARY KEY)"
    )
    await place.direct.execute("INSERT INTO recollect_version VALUES ('0001')")
    await older_append(place, b"t1", "I am Xiao Li", "hello")
    await older_append(place, b"t2", "bye")


async def older_append(place: Place, turn: bytes, *said: str) -> list[int]:
    records = [b'{"content": "%b"}' % text.encode() for text in said]
    settings = await place.direct.fetchval(
        "SELECT concat_ws(' ', current_setting('fsync'), current_setting('full_page_writes'), "
        "current_setting('synchronous_standby_names'))"
    )
    outcome: list[int] = await place.direct.fetchval(
        "SELECT recollect_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        *([b"s"], [len(records)], records, [turn], [None]),
        *(None, False, 1000, "on", settings),
    )
    return outcome


async def test_a_schema_of_an_older_release(place: Place) -> None:
    await older_schema(place)
    async with open_store(place.url) as store:
        await check_older_session(store)
    assert await place.direct.fetchval("SELECT oldest_release_schema FROM recollect_meta") == 1
    assert await place.direct.fetchval("SELECT version_num::int FROM recollect_version") == (
        postgres_schema.RELEASE_SCHEMA
    )


async def test_an_older_release_on_the_same_schema(place: Place) -> None:
    await older_schema(place)
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", "new")], turn="n")
        assert await older_append(place, b"o", "older") == [0, 5, 5]
        assert await older_append(place, b"n", "not compared") == [1, 4, 4]
        assert (await store.append("s", [Message("user", "anything")], turn="o")).last == 5
        with pytest.raises(TurnReused):
            await store.append("s", [Message("user", "anything")], turn="n")


async def test_a_role_of_an_older_schema_may_use_what_the_newer_one_adds(place: Place) -> None:
    await older_schema(place)
    role = f"user_{place.schema}"
    await place.direct.execute(f"CREATE ROLE {role} LOGIN")
    await place.direct.execute(f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    await place.direct.execute(
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place.schema} TO {role}"
    )
    async with open_store(place.url):
        pass
    async with open_store(place.url_as(role), migrate=False) as store:
        await store.annotate("s", {"a": 1})
        assert (await store.describe("s")).metadata == {"a": 1}
        await store.forget("s")
