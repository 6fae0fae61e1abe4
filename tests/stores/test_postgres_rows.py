"""Rows whose numbers have changed on the disk: the index still has them in order, and the table disagrees."""

import struct

import asyncpg
import pytest

from recollect import Damaged, Message, Stored, open_store
from recollect.message import encode
from recollect.stores.postgres.rows import placing, placing_marked
from recollect.tombstone import tombstone
from recollect.verify import engines


def read(numbers: list[int], counted: int, *, marked: bool, tombstones: tuple[int, ...] = ()) -> list[Stored]:
    """The history of rows whose texts are their places in the index, from 1."""
    records = [
        tombstone(place) if place in tombstones else encode(Message("user", str(place)))
        for place in range(1, len(numbers) + 1)
    ]
    rows = [(counted, 0, *row) for row in zip(numbers, records, strict=True)]
    stored: list[Stored] = []
    steps = placing_marked(stored, rows[::-1], 0, 1_000) if marked else placing(stored, rows, 0, 1_000)
    for _ in steps:
        pass
    return stored


def shown(stored: list[Stored]) -> list[str | int]:
    """Texts of messages that are in their places, and the sequences of damaged ones."""
    return [
        item.sequence
        if isinstance(item.message, Damaged)
        else f"{item.message.text}{'' if item.message.text == str(item.sequence) else ' misplaced'}"
        for item in stored
    ]


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 3, 4], ["1", "2", "3", "4"]),
        ([1, 2, 2051, 4], ["1", "2", 3, "4"]),
        ([1, 2, 3, 0], ["1", "2", "3", 4]),
        ([1, 0, 3, 0], ["1", 2, "3", 4]),
        ([0, 2, 3, 4], [1, "2", "3", "4"]),
        ([9, 2, 3, 4], [1, "2", "3", "4"]),
        ([1, 4, 3, 4], ["1", 2, "3", 4]),
        ([1, 3, 3, 4], ["1", 2, 3, "4"]),
    ],
)
def test_a_message_is_never_shown_in_anothers_place(
    numbers: list[int], expected: list[str | int], *, marked: bool
) -> None:
    assert shown(read(numbers, 4, marked=marked)) == expected


def test_tombstones_beside_a_changed_number_stay_silent() -> None:
    assert shown(read([1, 2, 2051, 4, 5], 5, marked=True, tombstones=(2,))) == ["1", 3, "4", "5"]


@pytest.mark.parametrize("marked", [False, True])
def test_messages_above_the_counter_are_shown_as_damaged(*, marked: bool) -> None:
    assert shown(read([1, 2, 3, 4, 5], 3, marked=marked)) == ["1", "2", "3", 4, 5]


async def test_a_row_of_another_session_is_damaged() -> None:
    """The index leads to it, and without checksums of its own PostgreSQL shows it."""
    engine = engines.create("postgres@16", "default")
    try:
        url = engine.start().url
        async with open_store(url) as store:
            for name in ("a", "b", "c"):
                await store.append(name, [Message("user", f"{name}{number}") for number in range(3)])
            await store.retract("c", 1)
        connection = await asyncpg.connect(url)
        rows = await connection.fetch("SELECT name, id FROM recollect_sessions")
        await connection.execute("CHECKPOINT")
        relation = await connection.fetchval("SELECT pg_relation_filepath('recollect_messages')")
        await connection.close()
        engine.stop()
        numbers = {name.decode(): number for name, number in rows}
        assert engine.data is not None
        path = engine.data / relation
        content = path.read_bytes()
        for name in ("a", "c"):  # the second message of each is the other's now
            mine, other = (struct.pack("<qq", numbers[whose], 2) for whose in (name, "b"))
            assert content.count(mine) == 1
            content = content.replace(mine, other)
        path.write_bytes(content)
        async with open_store(engine.start().url) as store:
            for last in (None, 10):
                for name in ("a", "c"):
                    found = {item.sequence: item.message for item in await store.history(name, last=last)}
                    assert isinstance(found[2], Damaged), (name, last, found)
                    assert isinstance(found[3], Message)
                assert [item.sequence for item in await store.history("b", last=last)] == [1, 2, 3]
    finally:
        engine.close()
