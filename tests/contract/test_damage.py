"""What cannot be read, or is gone, is shown in its place: no exception for the rest, no silent skip."""

import sqlite3
from collections.abc import Callable

import pytest

from recollect import Damaged, Message, Store
from tests.contract.conftest import Place

GARBAGE = [
    b"",
    b"\xff\xfe",
    b"{",
    b"null",
    b"7",
    b'{"v":1}',
    b'{"v":"x","role":"user"}',
    b'{"v":1,"content":NaN}',
]


@pytest.mark.parametrize("raw", GARBAGE, ids=ascii)
async def test_a_damaged_record_is_marked_and_the_others_are_read(
    place: Place, store: Store, session: str, raw: bytes
) -> None:
    await store.append(session, [Message("user", "a"), Message("user", "b"), Message("user", "c")])
    await _overwrite(place, session, 2, raw)
    found = await store.history(session)
    assert [item.sequence for item in found] == [1, 2, 3]
    damaged = found[1].message
    assert isinstance(damaged, Damaged)
    assert damaged.raw == raw
    assert damaged.reason
    assert [item.sequence for item in await store.history(session, last=2)] == [2, 3]


async def test_a_record_of_another_tool_is_lifted(place: Place, store: Store, session: str) -> None:
    await store.append(session, [Message("user", "a")])
    await _overwrite(place, session, 1, b'{"role": "assistant", "content": "hello", "timestamp": 1700000000}')
    (item,) = await store.history(session)
    assert isinstance(item.message, Message)
    assert (item.message.role, item.message.text, item.message.timestamp) == ("assistant", "hello", 1.7e9)


@pytest.mark.parametrize("gone", [(1,), (1, 2), (2,), (2, 3)], ids=str)
async def test_missing_messages_are_said_to_be_missing(
    place: Place, store: Store, session: str, gone: tuple[int, ...]
) -> None:
    await store.append(session, [Message("user", text) for text in "abcd"])
    await _remove(place, session, gone)
    found = await store.history(session)
    shown = {item.sequence: item.message for item in found}
    assert isinstance(shown[gone[0]], Damaged)
    assert str(gone[0]) in str(shown[gone[0]])
    assert [n for n, message in shown.items() if isinstance(message, Message)] == sorted(
        {1, 2, 3, 4} - {*gone}
    )


async def _overwrite(place: Place, session: str, sequence: int, raw: bytes) -> None:
    await _touch(place, session, "overwrite", [sequence], raw)


async def _remove(place: Place, session: str, sequences: tuple[int, ...]) -> None:
    await _touch(place, session, "remove", list(sequences), b"")


async def _touch(place: Place, session: str, how: str, sequences: list[int], raw: bytes) -> None:
    """Does behind the store's back what a bit flip, an eviction or a colleague's script does."""
    hands: dict[str, Callable[..., object]] = {"sqlite": _sqlite, "redis": _redis, "postgres": _postgres}
    result = hands[place.name](place, session, how, sequences, raw)
    if result is not None:
        await result  # type: ignore[misc]


def _sqlite(place: Place, session: str, how: str, sequences: list[int], raw: bytes) -> None:
    connection = sqlite3.connect(place.url.removeprefix("sqlite:///"))
    with connection:
        (number,) = connection.execute(
            "SELECT id FROM recollect_sessions WHERE key = ?", (session.encode(),)
        ).fetchone()
        for sequence in sequences:
            where = (number << 32 | sequence,)
            if how == "remove":
                connection.execute("DELETE FROM recollect_messages WHERE place = ?", where)
            else:
                connection.execute("UPDATE recollect_messages SET record = ? WHERE place = ?", (raw, *where))
    connection.close()


async def _redis(place: Place, session: str, how: str, sequences: list[int], raw: bytes) -> None:
    client = place.redis()
    keys = [key async for key in client.scan_iter(match=f"*{session}*", _type="list")]
    key = next(key for key in keys if b"m" in key.rsplit(b":", 1)[-1])
    if how == "remove":
        for element in [await client.lindex(key, sequence - 1) for sequence in sequences]:
            await client.lrem(key, 1, element)
    else:
        await client.lset(key, sequences[0] - 1, raw)
    await client.aclose()


async def _postgres(place: Place, session: str, how: str, sequences: list[int], raw: bytes) -> None:
    import asyncpg

    connection = await asyncpg.connect(place.url)
    number = await connection.fetchval("SELECT id FROM recollect_sessions WHERE name = $1", session.encode())
    if how == "remove":
        await connection.execute(
            "DELETE FROM recollect_messages WHERE session_id = $1 AND sequence = ANY($2)", number, sequences
        )
    else:
        await connection.execute(
            "UPDATE recollect_messages SET record = $3 WHERE session_id = $1 AND sequence = $2",
            number,
            sequences[0],
            raw,
        )
    await connection.close()
