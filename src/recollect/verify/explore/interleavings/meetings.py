"""Whether operations meet in something that cannot be seen: a lock of the driver's, or a connection that both use.

Which steps commute is read from the store's memory, which ends where a driver begins. But when a step makes another
operation go on, writes to a connection on which another waits, or fails at once beside another, they share something;
and if the store's memory has not changed, it is something that we do not see.
"""

from __future__ import annotations

from recollect.verify.explore.interleavings.footprints import MEMORY, UNSEEN, Footprint, operations_in
from recollect.verify.explore.interleavings.outside import Outside


class Meetings:
    """Of one step after the other."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self.others: set[str] = set()
        """Operations that have ended in this step, or were in somebody's way."""

    def begin_step(self) -> None:
        self.others = set()

    def note(self, kind: str, operation: str) -> None:
        if kind == "end":
            self.others.add(operation)

    def with_unseen(self, touched: Footprint) -> Footprint:
        """What the step that ends has touched."""
        own = operations_in(touched)
        met = not self.others <= own or self._outside.others_asked(own)
        return touched | {(UNSEEN, True)} if met and (MEMORY, True) not in touched else touched
