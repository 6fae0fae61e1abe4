"""The elements of a list as messages in their places, and what is missing among them."""

from recollect.message import Damaged, decode
from recollect.store import Stored


def placed(elements: list[bytes], first: int, last: int) -> list[Stored]:
    """Sequences `first` to `last`: each element, ``b"<sequence> <record>"``, in its place; `Damaged` for each hole."""
    stored: list[Stored] = []
    expected = first
    for element in elements:
        head, separator, record = element.partition(b" ")
        if not (
            separator and head.isdigit()
        ):  # put there by another tool, or damaged: its place is its sequence
            stored.append(Stored(expected, decode(element)))
            expected += 1
            continue
        sequence = int(head)
        if sequence != expected:
            if sequence < first:
                continue  # before the window: the whole list came because it has holes
            if sequence < expected:
                stored.append(Stored(sequence, Damaged(element, "this sequence is in the list twice")))
                continue
            stored.append(_hole(expected, sequence - 1))
        stored.append(Stored(sequence, decode(record)))
        expected = sequence + 1
    if expected <= last:
        stored.append(_hole(expected, last))
    return stored


def _hole(first: int, last: int) -> Stored:
    reason = (
        f"messages {first} to {last} were acknowledged and are gone, not forgotten and not expired: evicted "
        "(maxmemory-policy), deleted by hand, or lost with the engine's last writes"
    )
    return Stored(first, Damaged(b"", reason))
