"""Values that no record can hold are refused alike by every store; what others put into an engine hides no more."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recollect import Damaged, Message, NotWritten, Refused, Store, Unreadable
from tests.contract.conftest import Place
from tests.contract.reading import texts
from tests.message.test_values import BAD, Text


@pytest.mark.parametrize(("bad", "words"), BAD.values(), ids=BAD)
async def test_refused_before_anything_is_written(
    store: Store, session: str, bad: Message, words: str
) -> None:
    with pytest.raises(Refused, match=words):
        await store.append(session, [Message("user", "good"), bad], turn="t")
    assert await store.history(session) == []
    await store.append(session, [Message("user", "good")], turn="t")
    assert await texts(store, session) == ["good"]


async def test_ids_of_another_type_are_refused(store: Store, session: str) -> None:
    for name in (Text(session), None, 7, [session]):
        with pytest.raises(Refused, match="session: text, not"):
            await store.append(name, [Message("user", "x")])  # type: ignore[arg-type]
        with pytest.raises(Refused, match="session: text, not"):
            await store.history(name)  # type: ignore[arg-type]
    for turn in (Text("t"), 7, b"t", ""):
        with pytest.raises(Refused, match="turn: "):
            await store.append(session, [Message("user", "x")], turn=turn)  # type: ignore[arg-type]
    assert await store.history(session) == []


async def test_halves_of_a_pair_in_ids_are_two_characters(store: Store, session: str) -> None:
    await store.append(f"{session}\ud83d\ude00", [Message("user", "halves")], turn="\ud83d\ude00")
    await store.append(f"{session}😀", [Message("user", "whole")], turn="😀")
    assert await texts(store, f"{session}\ud83d\ude00") == ["halves"]
    assert await texts(store, f"{session}😀") == ["whole"]


# ---- SQLite keeps in a column whatever is put there


def changed(place: Place, session: str, statement: str, *values: object) -> None:
    connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
    with connection:
        (number,) = connection.execute(
            "SELECT id FROM recollect_sessions WHERE key = ?", (session.encode(),)
        ).fetchone()
        connection.execute(statement, (*values, number))
    connection.close()


SECOND = "UPDATE recollect_messages SET record = {} WHERE place = (? << 32) + 2"


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("put", "raw"),
    [
        ("7", b"7"),
        ("1.5", b"1.5"),
        ("'a text'", b"a text"),
        ("CAST(x'FFFE' AS TEXT)", b"\xff\xfe"),
        ("CAST(record AS TEXT)", None),
        ("NULL", b""),
    ],
)
async def test_a_record_of_another_type_is_damaged(
    place: Place, store: Store, session: str, put: str, raw: bytes | None
) -> None:
    await store.append(session, [Message("user", text) for text in "abc"])
    if put == "NULL":
        without_constraint(place)
    changed(place, session, SECOND.format(put))
    async with place.open() as fresh:
        for found in (await fresh.history(session), await fresh.history(session, last=3)):
            assert [item.sequence for item in found] == [1, 2, 3]
            damaged = found[1].message
            assert isinstance(damaged, Damaged)
            assert raw is None or damaged.raw == raw
            assert [found[0].message.text, found[2].message.text] == ["a", "c"]  # type: ignore[union-attr]


def without_constraint(place: Place) -> None:
    """The table as a tool that copies rows may have made it."""
    connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
    connection.executescript(
        "CREATE TABLE copy (place INTEGER PRIMARY KEY, record, written REAL);"
        "INSERT INTO copy SELECT * FROM recollect_messages;"
        "DROP TABLE recollect_messages; ALTER TABLE copy RENAME TO recollect_messages;"
    )
    connection.close()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["floor = 'abc'", "floor = 1.5", "expires_at = 'soon'", "ended = x'07'"])
async def test_a_session_row_of_another_type_is_said_to_be_unreadable(
    place: Place, store: Store, session: str, column: str
) -> None:
    other = f"{session}-other"
    for name in (session, other):
        await store.append(name, [Message("user", "x")])
    changed(place, session, f"UPDATE recollect_sessions SET {column} WHERE id = ?")
    async with place.open() as fresh:
        with pytest.raises(Unreadable, match="something other than recollect"):
            await fresh.history(session)
        with pytest.raises(NotWritten, match="something other than recollect"):
            await fresh.append(session, [Message("user", "y")])
        assert await texts(fresh, other) == ["x"]
        await fresh.append(other, [Message("user", "y")])


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_turn_row_of_another_type(place: Place, store: Store, session: str) -> None:
    await store.append(session, [Message("user", "x")], turn="t")
    changed(place, session, "UPDATE recollect_turns SET first = 'one' WHERE session = ?")
    with pytest.raises(NotWritten, match="something other than recollect"):
        await store.append(session, [Message("user", "x")], turn="t")
    assert await texts(store, session) == ["x"]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_ids_of_another_type_do_not_hide_the_list(place: Place, store: Store, session: str) -> None:
    await store.append(session, [Message("user", "x")])
    for key in ("a text", 7, b"\xff\xff"):
        connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
        with connection:
            row = connection.execute("INSERT INTO recollect_sessions (key) VALUES (?)", (key,)).lastrowid
            connection.execute(
                "INSERT INTO recollect_messages (place, record) VALUES ((? << 32) + 1, x'00')", (row,)
            )
        connection.close()
    assert [name async for name in store.sessions()] == [session]


# ---- Redis


async def by_hand(place: Place, do: Callable[[Any], Awaitable[Any]]) -> Any:
    import redis.asyncio

    client = redis.asyncio.from_url(place.url)
    try:
        return await do(client)
    finally:
        await client.aclose()


async def key_of(place: Place, session: str, kind: str) -> Any:
    async def found(client: Any) -> Any:
        async for key in client.scan_iter(match=f"*{{s{session}}}:{kind}"):
            return key
        raise AssertionError(f"no key {kind} of {session}")

    return await by_hand(place, found)


@pytest.mark.parametrize("place", ["redis"], indirect=True)
@pytest.mark.parametrize("kind", ["m", "c", "t"])
async def test_a_key_of_another_type(place: Place, session: str, kind: str) -> None:
    other = f"other-{session}"
    async with place.open() as store:
        for name in (session, other):
            await store.append(name, [Message("user", "x")], turn="t")
    key = await key_of(place, session, kind)
    await by_hand(place, lambda client: client.set(key, "a text"))
    async with place.open() as store:
        with pytest.raises(NotWritten, match="WRONGTYPE"):
            await store.append(session, [Message("user", "y")], turn="t2")
        if kind == "t":
            assert await texts(store, session) == ["x"]
        else:
            with pytest.raises(Unreadable, match="WRONGTYPE"):
                await store.history(session)
        assert await texts(store, other) == ["x"]


@pytest.mark.parametrize("place", ["redis"], indirect=True)
@pytest.mark.parametrize("value", ["abc", "nan", "inf", "-1", "1.5", "1e400", "9" * 5000, ""])
@pytest.mark.parametrize("field", ["last", "floor", "expires"])
async def test_a_counter_that_is_no_number(place: Place, session: str, field: str, value: str) -> None:
    async with place.open() as store:
        await store.append(session, [Message("user", "a"), Message("user", "b")])
    key = await key_of(place, session, "c")
    await by_hand(place, lambda client: client.hset(key, field, value))
    async with place.open() as store:
        assert await texts(store, session) == ["a", "b"]
        receipt = await store.append(session, [Message("user", "c")])
        assert (receipt.first, receipt.last) == (3, 3)
        assert await texts(store, session) == ["a", "b", "c"]
        assert await texts(store, session, last=2) == ["b", "c"]


@pytest.mark.parametrize("place", ["redis"], indirect=True)
@pytest.mark.parametrize("element", [b"9" * 5000 + b" x", b"99999999 x", b"no number", b"", b"\xff"])
async def test_an_element_of_another_shape_hides_no_other(place: Place, session: str, element: bytes) -> None:
    async with place.open() as store:
        await store.append(session, [Message("user", text) for text in "abcd"])
    key = await key_of(place, session, "m")
    await by_hand(place, lambda client: client.lset(key, 1, element))
    async with place.open() as store:
        found = await store.history(session)
        assert [item.sequence for item in found] == [1, 2, 3, 4]
        assert isinstance(found[1].message, Damaged)
        assert found[1].message.raw == element
        assert [found[n].message.text for n in (0, 2, 3)] == ["a", "c", "d"]  # type: ignore[union-attr]


@pytest.mark.parametrize("place", ["redis"], indirect=True)
async def test_a_state_and_a_name_that_recollect_did_not_write(place: Place, session: str) -> None:
    async with place.open() as store:
        await store.append(session, [Message("user", "x")])
        await store.forget(session)
        counter = await key_of(place, session, "c")
        await by_hand(place, lambda client: client.hset(counter, "gone", b"\xffelsewhere"))
        with pytest.raises(Unreadable, match="unexpected state"):
            await store.state(session)
        await store.append(session, [Message("user", "x")])
        name = f"recollect:{{s{session}%FF}}:m"
        await by_hand(place, lambda client: client.rpush(name, "1 x"))
        names = [found async for found in store.sessions()]
        assert session in names
        await by_hand(place, lambda client: client.delete(name))


# ---- PostgreSQL


@pytest.mark.parametrize("own_place", ["postgres"], indirect=True)
async def test_rows_whose_constraints_somebody_dropped(own_place: Place, session: str) -> None:
    import asyncpg

    async with own_place.open() as store:
        for name in (session, f"{session}-other"):
            await store.append(name, [Message("user", text) for text in "abc"])
        connection = await asyncpg.connect(own_place.url)
        await connection.execute("ALTER TABLE recollect_messages ALTER record DROP NOT NULL")
        await connection.execute("UPDATE recollect_messages SET record = NULL WHERE sequence = 2")
        found = await store.history(session)
        assert [item.sequence for item in found] == [1, 2, 3]
        assert isinstance(found[1].message, Damaged)
        await connection.execute("ALTER TABLE recollect_sessions ALTER last DROP NOT NULL")
        await connection.execute(
            "UPDATE recollect_sessions SET last = NULL WHERE name = $1", session.encode()
        )
        await connection.close()
        with pytest.raises(Unreadable, match="something other than recollect"):
            await store.history(session)
        assert len(await store.history(f"{session}-other")) == 3


@pytest.mark.parametrize("own_place", ["postgres"], indirect=True)
async def test_a_column_that_became_text(own_place: Place, session: str) -> None:
    import asyncpg

    async with own_place.open() as store:
        await store.append(session, [Message("user", text) for text in "abc"])
    connection = await asyncpg.connect(own_place.url)
    await connection.execute(
        "ALTER TABLE recollect_messages ALTER record TYPE text USING convert_from(record, 'UTF8')"
    )
    await connection.close()
    async with own_place.open() as store:
        found = await store.history(session)
        assert [item.sequence for item in found] == [1, 2, 3]
        assert all(isinstance(item.message, Damaged) for item in found)
