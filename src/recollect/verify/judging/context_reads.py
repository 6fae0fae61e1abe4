"""Comparing the statements of one context read.

Each statement covers a part of the session: everything, everything behind its first element (`last`), or
everything behind its cursor (`after`). If one statement returned a message and another, which covers it, did
not, then the two saw different states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recollect.verify.judging.op import Part, ReadAsked
from recollect.verify.judging.read_deltas import WHOLE, OddTable, View, chain_of


def fractures(first: View, parts: Sequence[Part], odds: OddTable) -> Iterator[tuple[int, int, int]]:
    """Yield (message, statement that has it, statement that lacks it), each message once."""
    views = [first]
    for part in parts[1:]:
        views.append(odds.decode(views[-1], part.seen))
    told: set[int] = set()
    for has, view in enumerate(views):
        for lacks, other in enumerate(views):
            if has == lacks or view == other:
                continue
            present = set(other)
            for message in _covered(view, parts[has].ask, other, parts[lacks].ask):
                if message >= 0 and message not in present and message not in told:
                    told.add(message)
                    yield message, has, lacks


def _covered(view: View, view_ask: ReadAsked, other: View, other_ask: ReadAsked) -> View:
    """The part of `view` that the other statement had to return too."""
    if chain_of(other_ask, len(other)) == WHOLE:
        return view
    floor = other_ask.after if other_ask.after is not None else other[0]
    if floor < 0:
        return []
    if view.count(floor) == 1:
        return view[view.index(floor) + 1 :]
    if view_ask.after is not None and view_ask.after == floor:
        return view
    return []
