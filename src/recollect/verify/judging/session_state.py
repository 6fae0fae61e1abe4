"""What the collector remembers about one session while it goes through a history.

The state is the latest view of each chain (see read_deltas.py) plus what is still open: acknowledged
messages that no read has had the chance to show yet, messages that went missing, forgets in flight.
"""

from __future__ import annotations

from recollect.verify.judging.evidence import IN_WHOLE, NEVER
from recollect.verify.judging.read_deltas import View
from recollect.verify.judging.retention import Life

FOREVER = 1 << 62


class Purge:
    """After `done`, nothing written before `invoked` may be visible: no message with a number below `below`."""

    __slots__ = ("below", "done", "invoked")

    def __init__(self, invoked: int, done: int, below: int) -> None:
        self.invoked, self.done, self.below = invoked, done, below


class Chain:
    """The latest view of one chain of reads.

    In `view` a message is its number and anything strange is negative. `peak` is the greatest number that was
    in the view; numbers are given at invocation, so it is the message that was invoked last. It may have
    left the view since. `in_order` is the last message that agreed with the order of earlier reads; those after it
    that did not are compared with it, not with each other. `pending` are acknowledged messages that are neither in
    the view nor counted missing.
    """

    __slots__ = ("bit", "doubled", "in_order", "last_read", "peak", "pending", "scanned", "view")

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.view: View = []
        self.peak = NEVER
        self.in_order = NEVER
        self.pending: list[int] = []
        self.doubled: set[int] = set()
        self.last_read = NEVER
        self.scanned = True  # whether everything in the view was checked against the latest purge


class SessionEvidence:
    __slots__ = (
        "acked_from",
        "begun",
        "complete",
        "expects",
        "forget_done",
        "forget_unknown",
        "forgets_open",
        "last_mutation",
        "last_ok_read",
        "last_read_by",
        "life",
        "live",
        "missing",
        "mutations_open",
        "number",
        "oldest",
        "purge",
        "struck",
        "taken_back",
        "top_rank",
        "unknown_messages",
        "vanished",
        "whole",
        "window",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.whole = Chain(IN_WHOLE)
        self.window: Chain | None = None
        self.missing: dict[int, int] = {}  # message → its open absence
        self.vanished: dict[int, tuple[int, int]] = {}  # message → first and last read that had it
        self.last_read_by: dict[int, int] = {}
        self.top_rank = 0.0
        self.begun = 0  # messages whose write began
        self.oldest = NEVER  # the first of them since the latest forget
        self.complete = NEVER  # the latest read that had to show everything, and not only a part
        self.live = 0  # acknowledged messages that no forget took
        self.acked_from = FOREVER  # index of the first of their acknowledgements
        self.forgets_open = 0
        self.forget_unknown = False
        self.forget_done = NEVER
        self.purge: Purge | None = None
        self.struck = NEVER  # the latest disturbance after which the session was read
        self.mutations_open = 0
        self.last_mutation = NEVER
        self.last_ok_read = NEVER  # index at which the latest successful read was invoked
        self.unknown_messages = 0
        self.life: Life | None = None
        self.taken_back: set[int] | None = None
        """Messages removed on purpose that the latest reads still had; None until a message is removed."""
        self.expects: dict[int, int] = {}  # expected sequence → turn acknowledged with it

    def begins(self, first: int, count: int) -> None:
        """So many messages are being written for the first time."""
        self.begun += count
        if self.oldest == NEVER or (self.purge is not None and self.oldest < self.purge.below):
            self.oldest = first

    def forget(self, purge: Purge) -> None:
        """Nothing that was acknowledged before is expected any more."""
        self.purge = purge
        self.forget_done = purge.done
        self.live = 0
        self.missing.clear()
        self.acked_from = FOREVER
        self.whole.pending.clear()
        self.whole.scanned = False
        if self.window is not None:
            self.window.scanned = False

    @property
    def shows_everything(self) -> int:
        """The read that the latest view of everything is from; `NEVER` if that view is only of a part."""
        return self.complete if self.complete == self.whole.last_read else NEVER

    @property
    def forget_floor(self) -> int:
        """A message invoked before this index may have been taken by a forget."""
        return FOREVER if self.forgets_open or self.forget_unknown else self.forget_done
