"""From rows to messages: each in its place, and a `Damaged` item where the counter says that rows are missing."""

from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg

from recollect import tombstone
from recollect.errors import Unreadable
from recollect.message import Damaged, decode
from recollect.slices import SLICE
from recollect.store import Stored

Row = asyncpg.Record | tuple[Any, ...]


def placing(
    stored: list[Stored], rows: Sequence[Row], after: int, last: int, known: int = 0
) -> Iterator[None]:
    """Puts the messages into a list, in their places, a slice at a time; a `Damaged` item marks rows that are missing
    below the counter, or below the last sequence known of the session."""
    if not rows:
        return
    newest, floor, first_sequence, _ = rows[0]
    _check_counter(newest, floor)
    newest = max(newest, known)
    expected = max(floor, after, newest - last) + 1
    if first_sequence is None:
        rows = ()
    for start in range(0, len(rows), SLICE):
        if start:
            yield
        for _, _, sequence, record in rows[start : start + SLICE]:
            if sequence > expected:
                stored.append(_missing(expected, sequence - 1))
            stored.append(Stored(sequence, decode(record)))
            expected = sequence + 1
    if expected <= newest:
        stored.append(_missing(expected, newest))


def placing_marked(
    stored: list[Stored], rows: Sequence[Row], after: int, rows_max: int, known: int = 0
) -> Iterator[None]:
    """The same for a session with tombstones, whose newest rows come first."""
    if not rows:
        return
    newest, floor, first_sequence, _ = rows[0]
    _check_counter(newest, floor)
    newest = max(newest, known)
    found = (
        [] if first_sequence is None else [(sequence, record) for _, _, sequence, record in reversed(rows)]
    )
    expected = max(floor, after) + 1
    if len(found) == rows_max:  # what is before the window is not asked for
        expected = max(expected, tombstone.run_first(found[0][1]) or found[0][0])
    yield from tombstone.placing(stored, found, expected, newest, _missing)


def _check_counter(newest: int | None, floor: int | None) -> None:
    if newest is None or floor is None:
        raise Unreadable("the session's row was changed by something other than recollect: it has no counter")


def _missing(first: int, last: int) -> Stored:
    which = f"message {first} is" if first == last else f"messages {first} to {last} are"
    return Stored(
        first, Damaged(b"", f"{which} gone: deleted outside of recollect, or lost by the engine or a restore")
    )
