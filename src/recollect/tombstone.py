"""What stands in the place of sequences that have no message: one form for every engine.

A retracted message leaves its sequence behind, and a change that stores no message (a retraction, an annotation) takes
one, so that `expect` notices it. Consecutive sequences without a message form a run. A run is one record, at its last
sequence: a NUL and the run's first sequence in digits. No message is encoded like that, and a release that does not
know tombstones shows one as `Damaged`.

A store joins adjacent runs. So there is always a message between two runs, and the last n messages of a session are
always among its last 2n + 1 records, whatever was retracted.
"""

from collections.abc import Callable, Iterator, Sequence

from recollect.bounds import INTEGER_MAX
from recollect.message import Damaged, decode_all
from recollect.slices import SLICE
from recollect.store import Stored

HEAD = b"\0"
DIGITS_MAX = 15


def tombstone(first: int) -> bytes:
    """The record of a run that begins here."""
    return b"%b%d" % (HEAD, first)


def run_first(record: object) -> int | None:
    """Where the run of a tombstone begins; None for any other record."""
    if type(record) is not bytes or record[:1] != HEAD:
        return None
    digits = record[1:]
    if not digits.isdigit() or len(digits) > DIGITS_MAX:
        return None
    first = int(digits)
    return first if 0 < first <= INTEGER_MAX else None


def records_for(messages: int) -> int:
    """How many of the last records are needed for this many messages, if nothing is missing."""
    return min(2 * messages + 1, INTEGER_MAX)


def placing(
    stored: list[Stored],
    rows: Sequence[tuple[int, bytes | Damaged]],
    expected: int,
    last: int,
    missing: Callable[[int, int], Stored],
) -> Iterator[None]:
    """Puts the messages of sequences `expected` to `last` into a list, a slice at a time: runs are left out, and a
    sequence with neither a message nor a run is `missing`. A row that is known to be damaged is one already."""
    begin = expected
    for start in range(0, len(rows), SLICE):
        if start:
            yield
        part = rows[start : start + SLICE]
        runs = [run_first(record) for _, record in part]
        records = [
            record
            for (_, record), run in zip(part, runs, strict=True)
            if run is None and not isinstance(record, Damaged)
        ]
        messages = iter(decode_all(records))
        for (sequence, record), run in zip(part, runs, strict=True):
            first = sequence if run is None else run
            if first > expected:
                stored.append(missing(expected, first - 1))
            if run is None:
                stored.append(Stored(sequence, record if isinstance(record, Damaged) else next(messages)))
            elif run > sequence or (run < expected and expected > begin):
                assert isinstance(record, bytes)
                stored.append(Stored(sequence, Damaged(record, "not where this run of sequences can begin")))
            expected = sequence + 1
    if expected <= last:
        stored.append(missing(expected, last))


def newest(stored: list[Stored], count: int | None) -> list[Stored]:
    """The last `count` messages, and the holes among them and right before them; holes are not counted."""
    if count is None or len(stored) <= count:
        return stored
    start = len(stored)
    while start > 0 and (count > 0 or _is_hole(stored[start - 1])):
        start -= 1
        count -= not _is_hole(stored[start])
    return stored[start:]


def _is_hole(item: Stored) -> bool:
    return isinstance(item.message, Damaged) and not item.message.raw
