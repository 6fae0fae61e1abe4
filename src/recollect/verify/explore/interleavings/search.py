"""Which schedule to run next. Every strategy replays a prefix of choices and goes on from there: no state is kept.

`ByPreemptions`  every schedule with at most `bound` preemptions, fewest first (CHESS): finds most bugs, smallest first.
`SourceSets`     every distinguishable schedule: those that differ only in the order of independent steps are left out.
`Alternating`    each client in turn: a rehearsal.
`Replay`         one schedule, from its string.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from recollect.verify.explore.interleavings.footprints import Footprint


class Choice(NamedTuple):
    """One step that could be next. `code` is what a schedule string says for it; `key` names it in every state."""

    actor: str
    code: str
    key: str
    alone: bool = False
    """Nothing but what they touch puts it in order with other steps of the same client."""
    is_mirrored: bool = False
    """A client that does the same could begin instead: with their names exchanged, that is the same schedule."""

    @property
    def line(self) -> str:
        """At most one step of a line can come next."""
        return self.key if self.alone else self.actor

    @property
    def is_cancellation(self) -> bool:
        return self.code[-1] in "!~"


class Redundant(Exception):
    """This schedule is the same as one that was already run."""


class Diverged(Exception):
    """The same prefix led somewhere else: something is not under control."""


class PickedOtherwise(Diverged):
    """The engine, which picks who gets a lock, has picked somebody else than before."""


DIVERGENCES_MAX = 3
"""How often a schedule that did not go as before is tried again."""
PICKS_MAX = 30
"""The same for one in which the engine picked somebody else for a lock."""


@dataclass
class Attempts:
    """Counts how often the same schedule is tried again."""

    _count: int = 0

    def allows(self, reason: Diverged) -> bool:
        self._count += 1
        return self._count <= (PICKS_MAX if isinstance(reason, PickedOtherwise) else DIVERGENCES_MAX)

    def begin(self) -> None:
        """The next schedule."""
        self._count = 0


class Strategy(Protocol):
    @property
    def reads_footprints(self) -> bool:
        """Whether it wants to know what the step that was picked last touches, which takes a third of the time. Once it
        does, it does until the end of the run."""
        ...

    def start(self) -> bool:
        """Prepares the next run; False when there is none."""
        ...

    def again(self) -> None:
        """The run that was started last came to nothing, so the next one repeats it."""
        ...

    def pick(self, enabled: Sequence[Choice], last: str) -> int: ...

    def picked(self, who: str) -> None:
        """In the step that was picked last, the engine has let these go on, of several who waited."""
        ...

    def did(self, footprint: Footprint) -> None: ...


def usual(enabled: Sequence[Choice], last: str) -> int:
    """Goes on with the same client as long as it can; never cancels."""
    plain = [index for index, choice in enumerate(enabled) if not choice.is_cancellation]
    for index in plain:
        if enabled[index].actor == last:
            return index
    return (plain or [0])[0]


def preempts(enabled: Sequence[Choice], last: str, index: int) -> int:
    """1 if a client that could go on is made to wait; a cancellation counts too."""
    chosen = enabled[index]
    if chosen.is_cancellation:
        return 1
    return int(chosen.actor != last and any(c.actor == last and not c.is_cancellation for c in enabled))


@dataclass
class ByPreemptions:
    """`bound` may be raised between two runs: what has been run is not run again."""

    reads_footprints: ClassVar[bool] = False

    bound: int
    _queue: list[tuple[int, int, tuple[str, ...]]] = field(default_factory=lambda: [(0, 0, ())])
    _later: list[tuple[int, int, tuple[str, ...]]] = field(default_factory=list)
    _serial: int = 0
    _now: tuple[int, int, tuple[str, ...]] = (0, 0, ())
    _taken: list[str] = field(default_factory=list)
    _spent: int = 0

    def start(self) -> bool:
        if not self._queue or self._queue[0][0] > self.bound:
            return False
        self._now = heapq.heappop(self._queue)
        self._later = []
        self._taken = []
        self._spent = 0
        return True

    def again(self) -> None:
        """Forgets the other choices that the failed run saw."""
        known = set(map(id, self._later))
        self._queue = [entry for entry in self._queue if id(entry) not in known]
        self._queue.append(self._now)
        heapq.heapify(self._queue)

    def pick(self, enabled: Sequence[Choice], last: str) -> int:
        depth, prefix = len(self._taken), self._now[2]
        if depth < len(prefix):
            index = _place(enabled, prefix[depth])
        else:
            index = usual(enabled, last)
            for other, choice in enumerate(enabled):
                if other != index and not choice.is_mirrored:
                    self._serial += 1
                    price = self._spent + preempts(enabled, last, other)
                    entry = (price, self._serial, (*self._taken, choice.key))
                    self._later.append(entry)
                    heapq.heappush(self._queue, entry)
        self._spent += preempts(enabled, last, index)
        self._taken.append(enabled[index].key)
        return index

    def picked(self, who: str) -> None:
        depth, prefix = len(self._taken), self._now[2]
        if depth < len(prefix) and prefix[depth] != PICKED + who:
            raise PickedOtherwise(f"the engine let {who} go on; before: {prefix[depth]}")
        self._taken.append(PICKED + who)

    def did(self, footprint: Footprint) -> None:
        pass


PICKED = ">"
"""In a prefix and in a schedule's string: whom the engine let go on."""


def _place(enabled: Sequence[Choice], key: str) -> int:
    for index, choice in enumerate(enabled):
        if choice.key == key:
            return index
    kind = PickedOtherwise if key.startswith(PICKED) else Diverged
    raise kind(f"{key} could not happen again; there was {', '.join(c.key for c in enabled)}")


@dataclass
class Alternating:
    """One run: each client in turn, one step at a time, forwards or backwards."""

    reads_footprints: ClassVar[bool] = False

    direction: int = 1
    _left: int = 1

    def start(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def again(self) -> None:
        self._left += 1

    def pick(self, enabled: Sequence[Choice], last: str) -> int:
        plain = [i for i, choice in enumerate(enabled) if not choice.is_cancellation]
        order = sorted(plain, key=lambda i: enabled[i].actor)[:: self.direction]
        later = [
            i for i in order if (enabled[i].actor > last) == (self.direction > 0) and enabled[i].actor != last
        ]
        return (later or order or [0])[0]

    def picked(self, who: str) -> None:
        pass

    def did(self, footprint: Footprint) -> None:
        pass


CODE = re.compile(r"[A-Z*][0-9]*[!~]?|>[a-z_]+")
"""One choice of a schedule string: the client, which of its possible steps, and whether it is a cancellation; or, after
a >, whom the engine let go on."""


def pick_code(who: str) -> str:
    return PICKED + who.lower().replace("*", "_")


@dataclass
class Replay:
    """One run, from its string; after the end of the string, each client goes on as long as it can."""

    reads_footprints: ClassVar[bool] = False

    schedule: str
    _left: int = 1
    _codes: list[str] = field(default_factory=list)

    def start(self) -> bool:
        self._codes = CODE.findall(self.schedule)
        self._left -= 1
        return self._left >= 0

    def again(self) -> None:
        self._left += 1

    def pick(self, enabled: Sequence[Choice], last: str) -> int:
        if len(enabled) == 1:
            return 0
        if not self._codes:
            return usual(enabled, last)
        code = self._codes.pop(0)
        if code.startswith(PICKED):
            raise PickedOtherwise(f"the engine let nobody go on; there was {code}")
        for index, choice in enumerate(enabled):
            if choice.code == code:
                return index
        raise Diverged(f"{code} could not happen; there was {', '.join(c.code for c in enabled)}")

    def picked(self, who: str) -> None:
        """A string without the engine's picks fits, whatever they are."""
        if self._codes and self._codes[0].startswith(PICKED):
            code = self._codes.pop(0)
            if code != pick_code(who):
                raise PickedOtherwise(f"the engine let {who} go on; there was {code}")

    def did(self, footprint: Footprint) -> None:
        pass


R = TypeVar("R")
S = TypeVar("S", bound=Strategy)


def started(strategy: S) -> S:
    strategy.start()
    return strategy


def replayed(schedule: str, run: Callable[[Strategy], R]) -> R:
    """One schedule, run until the engine picks as it did."""
    attempts = Attempts()
    while True:
        try:
            return run(started(Replay(schedule)))
        except PickedOtherwise as reason:
            if not attempts.allows(reason):
                raise
