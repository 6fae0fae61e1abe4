"""The elements of a list as messages in their places, and what is missing among them."""

from recollect.message import Damaged, decode
from recollect.store import Stored


def placed(elements: list[bytes], first: int, last: int) -> list[Stored]:
    """Sequences `first` to `last`: each element, ``b"<sequence> <record>"``, in its place; `Damaged` for each hole."""
    stored: list[Stored] = []
    expected = first
    for element in elements:
        head, separator, record = element.partition(b" ")
        if head == b"%d" % expected and separator:  # nearly always
            stored.append(Stored(expected, decode(record)))
            expected += 1
        elif not (separator and head.isdigit()):
            # Put there by another tool, or damaged: its place is its sequence.
            stored.append(Stored(expected, decode(element)))
            expected += 1
        elif int(head) >= expected:
            stored.append(_hole(expected, int(head) - 1))
            stored.append(Stored(int(head), decode(record)))
            expected = int(head) + 1
        elif int(head) >= first:
            stored.append(Stored(int(head), Damaged(element, "this sequence is in the list twice")))
        # Else it is before the window: the whole list came because it has holes.
    if expected <= last:
        stored.append(_hole(expected, last))
    return stored


def _hole(first: int, last: int) -> Stored:
    reason = (
        f"messages {first} to {last} were acknowledged and are gone, not forgotten and not expired: evicted "
        "(maxmemory-policy), deleted by hand, or lost with the engine's last writes"
    )
    return Stored(first, Damaged(b"", reason))
