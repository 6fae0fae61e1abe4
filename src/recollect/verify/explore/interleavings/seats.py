"""The clients of one schedule of tasks: what each is doing, and whether it only waits for another."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from recollect.verify.explore.interleavings.footprints import Footprint
from recollect.verify.explore.interleavings.held_connection import ACTOR, RUNNING, Segment
from recollect.verify.explore.interleavings.outside import Outside, StepOption, StepOptions
from recollect.verify.explore.interleavings.program import NAMES, ClientsProgram, ProgramOp

DEADLINE_S = 600.0
"""In the store's time: what has not ended by then, with nothing but timers left, never does."""
ROUNDS_MAX = 20
"""How often a client may ask the same and get the same answer while nobody else can move."""
ROUNDS_FREE = 5
"""How often it may do so while others could move: a store that gives up waiting should get to do so."""


@dataclass
class Seat:
    """One client of the schedule."""

    number: int
    ops: tuple[ProgramOp, ...]
    twins: tuple[int, ...] = ()
    """Clients before it that do the same."""
    name: str = ""
    task: asyncio.Task[None] | None = None
    begun: int = 0
    begun_s: float = 0.0
    held_up: bool = False
    """Time passed while somebody could have moved: if its patience ended, that is our doing."""
    last: tuple[bytes, bytes] = (b"", b"")
    rounds: int = 0
    """How often it asked the same and got the same answer: it waits for somebody else."""

    def __post_init__(self) -> None:
        self.name = NAMES[self.number]

    @property
    def operation(self) -> str:
        """The one that was begun last."""
        return f"{self.name}{self.begun}"

    def context(self) -> contextvars.Context:
        """For what runs on behalf of this operation."""
        context = contextvars.copy_context()
        context.run(ACTOR.set, self.name)
        context.run(RUNNING.set, self.operation)
        return context

    @property
    def busy(self) -> bool:
        return self.task is not None and not self.task.done()


class Seats(list[Seat]):
    """The clients of the schedule."""

    @classmethod
    def of_clients(cls, program: ClientsProgram) -> Seats:
        return cls(Seat(number, ops, program.twins(number)) for number, ops in enumerate(program.clients))

    def of(self, actor: str) -> Seat:
        return self[NAMES.index(actor)]

    @property
    def any_busy(self) -> bool:
        return any(seat.busy for seat in self)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that have not ended."""
        return [seat.task for seat in self if seat.task is not None and seat.busy]

    @property
    def under_way(self) -> set[str]:
        """Operations."""
        return {seat.operation for seat in self if seat.busy}

    def offer(self, found: StepOptions, begin: Callable[[Seat], Footprint]) -> None:
        """Whose next operation could begin."""
        for seat in self:
            if not seat.busy and seat.begun < len(seat.ops):
                is_mirrored = not seat.begun and any(not self[twin].begun for twin in seat.twins)
                found.offer(seat.name, f"begin:{seat.begun}", partial(begin, seat), is_mirrored=is_mirrored)

    def offer_to_cancel(self, found: StepOptions, outside: Outside, cancel: Callable[..., Footprint]) -> None:
        """Who could give up: where it waits, or as a reply comes."""
        for seat in self:
            if not seat.busy:
                continue
            found.offer(seat.name, f"cancel:{seat.begun}", partial(cancel, seat), mark="!")
            for one in outside.waiting_connections:
                if one.answers and one.answers[0].owner == seat.name:
                    what = f"cancel+:{outside.place(seat.name, one)}"
                    found.offer(seat.name, what, partial(cancel, seat, one), mark="~")

    def any_overdue(self, now: float) -> bool:
        return any(seat.busy and now - seat.begun_s > DEADLINE_S for seat in self)

    def heard(self, asked: Segment) -> bool:
        """Counts how often a client asks the same and gets the same answer; whether that is all that happens."""
        if asked.owner not in NAMES[: len(self)]:
            return False
        seat, now = self.of(asked.owner), (bytes(asked.data), asked.reply)
        same, seat.last = now == seat.last, now
        seat.rounds = seat.rounds + 1 if same else 0
        for other in self:
            if other is not seat and not same:
                other.rounds = 0
        return seat.rounds > ROUNDS_MAX

    def without_rounds(self, found: list[StepOption]) -> list[StepOption]:
        """Whoever asks the same question again and gets the same answer is waiting for somebody else's step."""
        waiting = {seat.name for seat in self if seat.rounds >= ROUNDS_FREE}
        if not waiting:
            return found
        others = [option for option in found if option.choice.actor not in waiting]
        return others if any(not option.choice.is_cancellation for option in others) else found
