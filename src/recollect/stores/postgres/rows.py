"""From rows to messages: each in its place, and a `Damaged` item where the counter says that rows are missing."""

from collections.abc import Sequence

import asyncpg

from recollect.message import Damaged, decode
from recollect.store import Stored


def placed(rows: Sequence[asyncpg.Record], after: int, last: int) -> list[Stored]:
    """The messages in their places; where rows are missing below the counter, a `Damaged` item says so."""
    if not rows:
        return []
    newest, floor, first_sequence, _ = rows[0]
    expected = max(floor, after, newest - last) + 1
    if first_sequence is not None and len(rows) == newest - expected + 1:
        return [Stored(sequence, decode(record)) for _, _, sequence, record in rows]
    placed: list[Stored] = []
    for _, _, sequence, record in rows if first_sequence is not None else ():
        if sequence > expected:
            placed.append(_missing(expected, sequence - 1))
        placed.append(Stored(sequence, decode(record)))
        expected = sequence + 1
    if expected <= newest:
        placed.append(_missing(expected, newest))
    return placed


def _missing(first: int, last: int) -> Stored:
    which = f"message {first} is" if first == last else f"messages {first} to {last} are"
    return Stored(
        first, Damaged(b"", f"{which} gone: deleted outside of recollect, or lost by the engine or a restore")
    )
