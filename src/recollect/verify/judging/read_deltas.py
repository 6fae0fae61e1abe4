"""Compact read values: a view is stored as its difference from the previous view of the session.

A session of 100,000 messages read 1,000 times would be 100 million numbers. Almost every read equals the one
before it plus a few new messages, so a read is stored as `previous[skip : skip + keep]` and a `tail` of runs.
The coding is lossless and knows nothing of right or wrong: a shrunken, reordered or leaking view is coded
just as well, only in more bytes.

There are two chains of views per session: reads that must return everything, and windows (`last`, `after`),
whose contents slide. A `last=n` read that came back with fewer than n elements belongs to the first; `ReadFolder`
decides what it covers. Each later statement of a context read is coded against the statement before it.

In memory a view is a list of numbers: a message whose checksum is the appended one is its number, everything
else is a negative code for an `OddElement`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from recollect.verify.judging.op import Element, OddElement, Part, ReadAsked, Seen

View = list[int]
WHOLE = 0
WINDOW = 1


def chain_of(ask: ReadAsked | None, count: int) -> int:
    """Which chain a read of `count` elements belongs to."""
    if ask is None or (ask.last is None and ask.after is None):
        return WHOLE
    if ask.after is None and ask.last is not None and count < ask.last:
        return WHOLE
    return WINDOW


def count_of(seen: Seen) -> int:
    tail = seen.tail
    if not tail:
        return seen.keep
    return seen.keep + (tail[1] if len(tail) == 2 else sum(tail[1::2]))


def to_runs(numbers: Iterable[int]) -> tuple[int, ...]:
    """Consecutive numbers as `start, count` pairs; a negative code is always a run of its own."""
    runs: list[int] = []
    after = -1
    for number in numbers:
        if number == after and number > 0:
            runs[-1] += 1
        else:
            runs += (number, 1)
        after = number + 1
    return tuple(runs)


def from_runs(runs: Sequence[int]) -> View:
    if len(runs) == 2 and runs[1] == 1:
        return [runs[0]]
    numbers: View = []
    for at in range(0, len(runs), 2):
        start, count = runs[at], runs[at + 1]
        if count == 1:
            numbers.append(start)
        else:
            numbers.extend(range(start, start + count))
    return numbers


def common_prefix(left: View, right: View, offset: int) -> int:
    """Length of the common prefix of `left[offset:]` and `right`, compared in slices, at C speed."""
    longest = min(len(left) - offset, len(right))
    if left[offset : offset + longest] == right[:longest]:
        return longest
    low, high = 0, longest  # equal up to low, different somewhere before high
    while high - low > 1:
        middle = (low + high) // 2
        if left[offset + low : offset + middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def difference(previous: View, view: View) -> tuple[int, int]:
    """The (skip, keep) that takes most of `view` from `previous`, for prefixes and sliding windows."""
    if not previous or not view:
        return 0, 0
    if previous[0] == view[0]:
        return 0, common_prefix(previous, view, 0)
    try:
        skip = previous.index(view[0])
    except ValueError:
        return 0, 0
    return skip, common_prefix(previous, view, skip)


class ViewEncoder:
    """Turns what targets return into `Seen` values; one per history that is being written."""

    def __init__(self) -> None:
        self._checksums = array("q")
        self._odds: list[OddElement] = []
        self._codes: dict[OddElement, int] = {}
        self._chains: dict[tuple[str, int], View] = {}

    def appended(self, first: int, checksums: Sequence[int]) -> None:
        """Learn the checksums of newly numbered messages; a retry adds nothing new."""
        if first == len(self._checksums):
            self._checksums.extend(checksums)

    def read(self, session: str, ask: ReadAsked | None, elements: Sequence[Element]) -> Seen:
        view = self._normalise(elements)
        key = (session, chain_of(ask, len(view)))
        seen = self._against(self._chains.get(key, []), view)
        self._chains[key] = view
        return seen

    def context(self, session: str, parts: Sequence[tuple[ReadAsked, Sequence[Element]]]) -> tuple[Part, ...]:
        coded: list[Part] = []
        previous: View = []
        for ask, elements in parts:
            if not coded:
                seen = self.read(session, ask, elements)
                previous = self._chains[session, chain_of(ask, len(elements))]
            else:
                view = self._normalise(elements)
                seen = self._against(previous, view)
                previous = view
            coded.append(Part(ask, seen))
        return tuple(coded)

    def _normalise(self, elements: Sequence[Element]) -> View:
        checksums, known = self._checksums, len(self._checksums)
        view: View = []
        for element in elements:
            message = element.message
            plain = message is not None and 0 <= message < known and not element.damaged
            if message is not None and plain and checksums[message] == element.checksum:
                view.append(message)
            else:
                view.append(self._code(OddElement(*element)))
        return view

    def _code(self, odd: OddElement) -> int:
        if odd not in self._codes:
            self._odds.append(odd)
            self._codes[odd] = -len(self._odds)
        return self._codes[odd]

    def _against(self, previous: View, view: View) -> Seen:
        skip, keep = difference(previous, view)
        tail: View = []
        odd: list[OddElement] = []
        for number in view[keep:]:
            if number < 0:
                odd.append(self._odds[-1 - number])
                tail.append(-len(odd))
            else:
                tail.append(number)
        return Seen(skip, keep, to_runs(tail), tuple(odd))


class OddTable:
    """Gives every odd element of a history one negative code, the same each time it is seen."""

    def __init__(self) -> None:
        self.odds: list[OddElement] = []
        self._codes: dict[OddElement, int] = {}

    def __getitem__(self, code: int) -> OddElement:
        return self.odds[-1 - code]

    def decode_tail(self, seen: Seen) -> View:
        """The tail of a read as numbers and codes."""
        if not seen.odd:
            return from_runs(seen.tail)
        tail: View = []
        for start, count in zip(seen.tail[::2], seen.tail[1::2], strict=True):
            if start < 0:
                tail.append(self._code(seen.odd[-1 - start]))
            else:
                tail.extend(range(start, start + count))
        return tail

    def decode(self, previous: View, seen: Seen) -> View:
        return previous[seen.skip : seen.skip + seen.keep] + self.decode_tail(seen)

    def _code(self, odd: OddElement) -> int:
        if odd not in self._codes:
            self.odds.append(odd)
            self._codes[odd] = -len(self.odds)
        return self._codes[odd]
