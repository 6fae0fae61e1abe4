"""From rows to messages: each in its place, and a `Damaged` item where the counter says that rows are missing.

Rows come in the order of the index, and with the number that the table has: where the two disagree, one of them has
changed on the disk. Pages have checksums only if the server was set up with them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import asyncpg

from recollect import tombstone
from recollect.message import Damaged, Message, decode_all
from recollect.slices import SLICE
from recollect.store import Stored
from recollect.stores.postgres.errors import row_changed

Row = asyncpg.Record | tuple[Any, ...]
_SEQUENCE, _RECORD, _NUMBERED = itemgetter(2), itemgetter(3), itemgetter(2, 3)


def placing(
    stored: list[Stored], rows: Sequence[Row], after: int, last: int, known: int = 0
) -> Iterator[None]:
    """Puts the messages into a list, in their places, a slice at a time; a `Damaged` item marks rows that are missing
    below the counter, or below the last sequence known of the session."""
    if not rows:
        return
    newest, floor, first_sequence = rows[0][:3]
    if newest is None or floor is None:
        raise row_changed()
    counted, newest = newest, max(newest, known)
    begin = expected = max(floor, after, newest - last) + 1
    before, in_order = len(stored), True
    if first_sequence is None:
        rows = ()
    for start in range(0, len(rows), SLICE):
        if start:
            yield
        part = rows[start : start + SLICE]
        sequences = list(map(_SEQUENCE, part))
        in_order &= _place(stored, sequences, decode_all(list(map(_RECORD, part))), expected)
        expected = sequences[-1] + 1
    if not in_order or (rows and expected - 1 > counted):  # numbers that cannot be: once more, with care
        del stored[before:]
        numbered = list(map(_NUMBERED, rows))
        yield from tombstone.placing(stored, _believed(numbered, counted), begin, newest, _missing)
    elif expected <= newest:
        stored.append(_missing(expected, newest))


def _place(
    stored: list[Stored], sequences: list[int], messages: list[Message | Damaged], expected: int
) -> bool:
    """Places the messages of a slice; returns whether each number is above the one before."""
    if sequences == list(range(expected, expected + len(sequences))):  # nearly always
        stored += map(Stored, sequences, messages)
        return True
    in_order = True
    for sequence, message in zip(sequences, messages, strict=True):
        if sequence != expected:
            in_order = in_order and sequence > expected
            stored.append(_missing(expected, sequence - 1))
        stored.append(Stored(sequence, message))
        expected = sequence + 1
    return in_order


def placing_marked(
    stored: list[Stored], rows: Sequence[Row], after: int, rows_max: int, known: int = 0
) -> Iterator[None]:
    """The same for a session with tombstones, whose newest rows come first."""
    if not rows:
        return
    newest, floor, first_sequence, _ = rows[0]
    if newest is None or floor is None:
        raise row_changed()
    counted, newest = newest, max(newest, known)
    found = (
        [] if first_sequence is None else [(sequence, record) for _, _, sequence, record in reversed(rows)]
    )
    expected = max(floor, after) + 1
    if len(found) == rows_max:  # what is before the window is not asked for
        expected = max(expected, tombstone.run_first(found[0][1]) or found[0][0])
    yield from tombstone.placing(stored, _believed(found, counted), expected, newest, _missing)


def _believed(rows: list[tuple[int, bytes]], counted: int) -> list[tuple[int, bytes | Damaged]]:
    """The rows, with `Damaged` in place of each whose number does not fit between its neighbours'."""
    numbers = [sequence for sequence, _ in rows]
    if numbers and numbers[0] > 0 and numbers[-1] <= counted and all(map(int.__lt__, numbers, numbers[1:])):
        return list(rows)
    kept = _longest_ascending(numbers)
    believed: list[tuple[int, bytes | Damaged]] = []
    following = iter([*kept, len(rows)])
    upcoming = next(following)
    for index, (sequence, record) in enumerate(rows):
        if index == upcoming:
            beyond = Damaged(record, "its number is beyond the session's last")
            believed.append((sequence, record if sequence <= counted else beyond))
            upcoming = next(following)
            continue
        place = believed[-1][0] + 1 if believed else 1
        if upcoming < len(rows):
            place = min(place, numbers[upcoming] - 1) if believed else max(1, numbers[upcoming] - 1)
        why = f"its row has changed on the disk: it says that it is message {sequence}, where that cannot be"
        believed.append((place, Damaged(record, why)))
    return believed


def _longest_ascending(numbers: Sequence[int]) -> list[int]:
    """The places of the longest increasing subsequence; of equal numbers none is believed."""
    counts = Counter(numbers)
    ends: list[int] = []
    places: list[int] = []
    before: dict[int, int | None] = {}
    for place, number in enumerate(numbers):
        if counts[number] > 1 or number < 1:
            continue
        length = bisect_left(ends, number)
        before[place] = places[length - 1] if length else None
        ends[length : length + 1] = [number]
        places[length : length + 1] = [place]
    kept: list[int] = []
    last = places[-1] if places else None
    while last is not None:
        kept.append(last)
        last = before[last]
    return kept[::-1]


def _missing(first: int, last: int) -> Stored:
    which = f"message {first} is" if first == last else f"messages {first} to {last} are"
    return Stored(
        first, Damaged(b"", f"{which} gone: deleted outside of recollect, or lost by the engine or a restore")
    )
