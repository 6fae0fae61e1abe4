"""Rows whose numbers have changed on the disk: the index still has them in order, and the table disagrees."""

import pytest

from recollect import Damaged, Message, Stored
from recollect.message import encode
from recollect.stores.postgres.rows import placing, placing_marked
from recollect.tombstone import tombstone


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
