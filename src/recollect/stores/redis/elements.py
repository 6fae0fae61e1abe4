"""The elements of a list as messages in their places, and what is missing among them."""

from collections.abc import Iterator
from itertools import repeat

from recollect import tombstone
from recollect.message import Damaged, Message, decode, decode_all, encode
from recollect.slices import SLICE
from recollect.store import Stored

DIGITS_MAX = 15


def placing(
    stored: list[Stored], elements: list[bytes], first: int, last: int, tombstones: int = -1
) -> Iterator[None]:
    """Puts sequences `first` to `last` into a list, a slice at a time: each element (``b"<sequence> <record>"``) in its
    place, and `Damaged` for each hole. `tombstones` is how many the counter says there are; less than 0: not known.
    Where there are none, one that is there is damage: it was meant for another session."""
    for start in range(0, len(elements), SLICE):
        if start:
            yield
        if not _place_in_turn(stored, elements[start : start + SLICE], first + start):
            stored.clear()
            yield from _placing_any(stored, elements, first, last, tombstones)
            return
    if first + len(elements) <= last:
        stored.append(_hole(first + len(elements), last))


def _place_in_turn(stored: list[Stored], elements: list[bytes], expected: int) -> bool:
    """Places the elements if each is the message that is expected next, as nearly always; else it does nothing."""
    sequences = range(expected, expected + len(elements))
    heads = [b"%d " % sequence for sequence in sequences]
    if not all(map(bytes.startswith, elements, heads)):
        return False
    records = list(map(bytes.removeprefix, elements, heads))
    if any(map(bytes.startswith, records, repeat(tombstone.HEAD))):
        return False
    stored += map(Stored, sequences, decode_all(records))
    return True


def _placing_any(
    stored: list[Stored], elements: list[bytes], first: int, last: int, tombstones: int
) -> Iterator[None]:
    rows = _with_runs(elements, first, last) if tombstones else None
    if rows is not None:
        yield from tombstone.placing(stored, rows, first, last, _hole)
        return
    expected = first
    for start in range(0, len(elements), SLICE):
        if start:
            yield
        expected = _place(stored, elements[start : start + SLICE], first, expected, last)
    if expected <= last:
        stored.append(_hole(expected, last))


def doubt(elements: list[bytes], last: int, tombstones: int) -> Stored | None:
    """What a history ends with if the counter says that the list has another number of tombstones: a change was lost on
    the disk, so a message that was retracted may be shown."""
    if tombstones <= 0 or tombstones == sum(map(_is_tombstone, elements)):
        return None
    return Stored(last, Damaged(b"", "a change was lost on the disk: what was retracted may be shown again"))


def _is_tombstone(element: bytes) -> bool:
    return b" \0" in element[: DIGITS_MAX + 2]


def _with_runs(elements: list[bytes], first: int, last: int) -> list[tuple[int, bytes]] | None:
    """Sequences and records, if tombstones are the only thing unusual among them; else None."""
    if not any(map(_is_tombstone, elements)):
        return None
    rows: list[tuple[int, bytes]] = []
    before = 0
    for element in elements:
        head, separator, record = element.partition(b" ")
        if not separator or not is_number(head) or not before < int(head) <= last:
            return None
        before = int(head)
        if before >= first:
            rows.append((before, record))
    return rows


def _place(stored: list[Stored], elements: list[bytes], first: int, expected: int, last: int) -> int:
    """Places the elements; returns the sequence expected after them."""
    for element in elements:
        head, separator, record = element.partition(b" ")
        if head == b"%d" % expected and separator:
            stored.append(Stored(expected, decode(record)))
            expected += 1
        elif not (separator and is_number(head)):
            # Put there by another tool, or damaged: its position gives its sequence.
            stored.append(Stored(expected, decode(element)))
            expected += 1
        elif int(head) > last:
            stored.append(Stored(expected, Damaged(element, "its number is beyond the session's last")))
            expected += 1
        elif int(head) >= expected:
            stored.append(_hole(expected, int(head) - 1))
            stored.append(Stored(int(head), decode(record)))
            expected = int(head) + 1
        elif int(head) >= first:
            _doubt(stored, int(head))
            stored.append(Stored(int(head), Damaged(element, _TWICE)))
        # Else it is before the window: the whole list was sent because it has holes.
    return expected


_TWICE = "this sequence is in the list twice, and there is no telling which one is right"


def _doubt(stored: list[Stored], sequence: int) -> None:
    """The earlier one may be another session's, under a key that has changed on the disk."""
    for place in range(len(stored) - 1, -1, -1):
        message = stored[place].message
        if stored[place].sequence == sequence and isinstance(message, Message):
            stored[place] = Stored(sequence, Damaged(encode(message), _TWICE))
            return


def is_number(text: bytes) -> bool:
    """Whether it can be a sequence. Python refuses to parse numbers with thousands of digits."""
    return text.isdigit() and len(text) <= DIGITS_MAX


def _hole(first: int, last: int) -> Stored:
    reason = (
        f"messages {first} to {last} were acknowledged and are gone, not forgotten and not expired: evicted "
        "(maxmemory-policy), deleted by hand, or lost with the engine's last writes"
    )
    return Stored(first, Damaged(b"", reason))
