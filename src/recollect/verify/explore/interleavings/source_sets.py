"""Which schedules differ in more than the order of independent steps; only those are run.

Depth first. A run is read afterwards for *races*: two steps of different clients that conflict, with nothing in between
that puts one before the other. Each race could have gone the other way round, so the state before its first step gets a
step to try that leads there (source sets: Abdulla and others, "Optimal dynamic partial order reduction", 2014). A step
that was tried earlier sleeps as long as every step since commutes with it (sleep sets), so no two runs that nobody can
tell apart go to their end; one that turns out to be such is cut short.

A step also comes after the one that made it possible: a reply that a lock held back, after the step that gave it back.
Steps of one line come one after the other, and mostly each client is a line. Where callers may give up, each step is a
line by itself, and what puts the steps of one operation in order is what they touch: so a client races with itself, a
reply with giving up. That costs more runs that are cut short where much of a client's work conflicts. Where a line can
go on in several ways (two requests sent together), such races are not seen: for that program, every step is tried in
every state, except those that sleep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.verify.explore.interleavings.footprints import MEMORY, UNSEEN, WRITES_ALL, Footprint, conflict
from recollect.verify.explore.interleavings.search import Choice, Diverged, PickedOtherwise, Redundant, usual


@dataclass
class _Crossing:
    """One state on the way, what was tried there, and the step that was chosen last."""

    enabled: tuple[Choice, ...]
    asleep: dict[str, tuple[str, Footprint]]
    """Steps that were tried from an equal state, by key: their line, and what they touched."""
    tried: dict[str, tuple[str, Footprint]] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    """Steps to try: one for each way in which a race could have gone."""
    chosen: int = -1
    picked: str | None = None
    """Whom the engine let go on in the chosen step: empty if it had no choice, None if it was not run yet."""
    touched: Footprint = WRITES_ALL
    before: int = 0
    """The steps that must come before the chosen one, as bits."""
    keys: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.keys = frozenset([choice.key for choice in self.enabled])

    @property
    def choice(self) -> Choice:
        return self.enabled[self.chosen]

    @property
    def following(self) -> int:
        for index, choice in enumerate(self.enabled):
            if choice.key in self.wanted and choice.key not in self.tried and choice.key not in self.asleep:
                return index
        return -1

    def choose(self, index: int) -> None:
        self.chosen, self.picked = index, None
        self.wanted.add(self.choice.key)


@dataclass
class SourceSets:
    """Every distinguishable schedule."""

    _stack: list[_Crossing] = field(default_factory=list)
    _advance: bool = False
    _depth: int = 0
    _done: int = 0
    """How many steps of this run have ended."""
    _first_new: int = 0
    """The first step of this run that the run before did not have."""
    _known: int = 0
    """How many states were known when this run began."""
    _handed: dict[str, tuple[str, Footprint]] = field(default_factory=dict)
    _picked: str = ""
    _left: frozenset[str] = frozenset()
    """What was still possible when this run was cut short; nothing is at its end."""
    _tries_all: bool = False
    _memory_is_unseen: bool = False
    """Callers share something in memory that cannot be seen, so that no two steps of the process commute."""
    _conflicts: dict[tuple[Footprint, Footprint], bool] = field(default_factory=dict)

    @property
    def reads_footprints(self) -> bool:
        """Of a step that was run before, they are known."""
        return self._depth >= self._known

    def start(self) -> bool:
        if self._advance and not self._stack:
            return False  # all of them were run
        if self._advance:
            self._find_races()
            while self._stack and self._next() < 0:
                self._stack.pop()
            if not self._stack:
                return False
            self._stack[-1].choose(self._next())
            self._first_new = len(self._stack) - 1
        self._advance = True
        self._depth = self._done = 0
        self._known = len(self._stack)
        self._picked = ""
        self._left = frozenset()
        return True

    def _next(self) -> int:
        state = self._stack[-1]
        # A step that never went the same way twice was given up, and nothing is known about it.
        state.tried.setdefault(state.choice.key, (state.choice.line, WRITES_ALL))
        return state.following

    def again(self) -> None:
        """Forgets the states that only the last run has seen."""
        self._advance = False
        del self._stack[self._known :]

    def pick(self, enabled: Sequence[Choice], last: str) -> int:
        able = [choice for choice in enabled if not choice.is_mirrored]
        chosen = able[self._pick(able, last)]
        self._depth += 1
        self._picked = ""
        return enabled.index(chosen)

    def _pick(self, enabled: Sequence[Choice], last: str) -> int:
        if self._depth < len(self._stack):
            state = self._stack[self._depth]
            now = [choice.key for choice in enabled]
            if state.keys.symmetric_difference(now):
                before = ", ".join(choice.key for choice in state.enabled)
                raise Diverged(f"step {self._depth}: {', '.join(now)}; before: {before}")
            index = now.index(state.choice.key)
        else:
            state = _Crossing(tuple(enabled), dict(self._handed) if self._stack else {})
            awake = [i for i, c in enumerate(enabled) if c.key not in state.asleep]
            if not awake:
                self._left = state.keys
                raise Redundant
            self._stack.append(state)
            if not self._tries_all and len({c.line for c in enabled}) < len(enabled):
                self._tries_all = True
                for each in self._stack:
                    each.wanted |= each.keys
            state.wanted |= state.keys if self._tries_all else set()
            # Nobody gives up as long as anything else can come next: what giving up prevents would not be seen racing.
            index = awake[usual([enabled[place] for place in awake], last)]
            state.choose(index)
        return index

    def picked(self, who: str) -> None:
        self._picked = who

    def did(self, footprint: Footprint) -> None:
        state = self._stack[self._depth - 1]
        if state.picked is not None and state.picked != self._picked:
            raise PickedOtherwise(f"the engine let {self._picked or 'nobody'} go on; before: {state.picked}")
        self._done = self._depth
        if not self.reads_footprints:
            return
        if (UNSEEN, True) in footprint and not self._memory_is_unseen:
            self._begin_anew()
            raise Redundant
        if self._memory_is_unseen:
            footprint = _with_memory(footprint)
        state.picked, state.touched = self._picked, footprint
        chosen = state.choice
        self._handed = {
            key: (line, touched)
            for key, (line, touched) in (*state.asleep.items(), *state.tried.items())
            if key != chosen.key and line != chosen.line and not self._conflict(touched, footprint)
        }
        state.tried[chosen.key] = (chosen.line, footprint)

    def _begin_anew(self) -> None:
        """What steps have touched in memory is not known after all: from now on, each that looks at it writes it."""
        self._memory_is_unseen = True
        self._advance = False
        self._stack.clear()

    # ---- races

    def _find_races(self) -> None:
        """Wants the other way round of every race that the last run has and the one before did not have."""
        for later in range(self._first_new, 0 if self._tries_all else self._done):
            state = self._stack[later]
            direct = [earlier for earlier in range(later) if self._comes_first(earlier, later)]
            state.before = 0
            for earlier in direct:
                state.before |= self._stack[earlier].before | 1 << earlier
            between = 0
            for earlier in reversed(direct):
                if not between >> earlier & 1 and self._is_race(earlier, later):
                    self._want_reversed(earlier, later)
                if not self._enables(earlier, later):
                    # What made it possible is no reason why it could not have come before what came before that.
                    between |= self._stack[earlier].before
            # A step that is no longer possible will not be seen racing: it is tried instead of this one.
            state.wanted |= state.keys - (
                self._stack[later + 1].keys if later + 1 < len(self._stack) else self._left
            )

    def _comes_first(self, earlier: int, later: int) -> bool:
        one, other = self._stack[earlier], self._stack[later]
        return (
            one.choice.line == other.choice.line
            or self._conflict(one.touched, other.touched)
            or self._enables(earlier, later)
        )

    def _enables(self, earlier: int, later: int) -> bool:
        """Whether the later step was possible only after the earlier one."""
        key = self._stack[later].choice.key
        return key not in self._stack[earlier].keys and key in self._stack[earlier + 1].keys

    def _is_race(self, earlier: int, later: int) -> bool:
        one, other = self._stack[earlier], self._stack[later]
        return one.choice.line != other.choice.line and not self._enables(earlier, later)

    def _want_reversed(self, earlier: int, later: int) -> None:
        state = self._stack[earlier]
        rest = [
            number for number in range(earlier + 1, later) if not self._stack[number].before >> earlier & 1
        ]
        rest.append(later)
        first = []
        seen = 0
        for number in rest:
            if not self._stack[number].before & seen:
                first.append(self._stack[number].choice.key)
            seen |= 1 << number
        if state.wanted.intersection(first):
            return
        possible = [key for key in first if key in state.keys]
        state.wanted |= set(possible[:1]) or state.keys

    def _conflict(self, one: Footprint, other: Footprint) -> bool:
        known = self._conflicts.get((one, other))
        if known is None:
            known = self._conflicts[one, other] = conflict(one, other)
        return known


def _with_memory(footprint: Footprint) -> Footprint:
    """With its memory written, if code of the process ran; else only the engine did something."""
    seen = {(MEMORY, True)} if (MEMORY, False) in footprint else set()
    return (footprint - {(MEMORY, False), (UNSEEN, True)}) | seen
