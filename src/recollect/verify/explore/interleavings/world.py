"""What tasks, threads and processes have in common: a world runs one schedule of a program, chosen by a strategy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from recollect.verify.explore.interleavings.footprints import Footprint
from recollect.verify.explore.interleavings.program import ClientsProgram
from recollect.verify.explore.interleavings.schedule_history import ScheduleHistory
from recollect.verify.explore.interleavings.search import Choice, Strategy, pick_code, preempts
from recollect.verify.explore.interleavings.store_past import StoreUse


class LoggedStep(NamedTuple):
    """One step as it happened, for people."""

    actor: str
    kind: str
    label: str
    told: str = ""


class Stuck(Exception):
    """The store waits for something that is not under control."""


class Unfinished(Exception):
    """The schedule does not end: a client asks the same question over and over, and nobody else can move."""


@dataclass
class ScheduleRun:
    """One schedule that was run."""

    history: ScheduleHistory
    schedule: str
    steps: list[LoggedStep]
    preemptions: int

    def went_like(self, other: ScheduleRun) -> bool:
        """Whether nobody could tell the two apart, but for numbers and for what opened connections."""
        return self._course == other._course

    @property
    def _course(self) -> list[tuple[str, str, str, str]]:
        return [
            (step.actor, step.kind, _VALUE.sub("#", step.label), step.told)
            for step in self.steps
            if step.kind != "setup"
        ]


_VALUE = re.compile(r"x?'[^']*'|\b[0-9]+\b|[0-9]{4,}")
"""Values in SQLite's statements, and numbers of messages and turns, which differ between schedules."""


class World(Protocol):
    """A target, used by several clients at once. The store is reopened when the last schedule may have damaged it, when
    it has been used for long, and when `fresh` says so; and for each schedule of a program with messages before, if
    what the store remembers changes how it goes."""

    def open(self) -> None:
        """Opens the store for the first schedule, which would otherwise be slower than the others."""
        ...

    @property
    def earlier(self) -> Sequence[StoreUse]:
        """What the store of the last schedule had been used for before."""
        ...

    @property
    def has_grown(self) -> bool:
        """Whether the last schedule left connections open that were not there before: it would go otherwise now."""
        ...

    @property
    def unseen(self) -> str | None:
        """What the store does out of sight, so that not every order could be tried."""
        ...

    def run(self, program: ClientsProgram, strategy: Strategy, *, fresh: bool = False) -> ScheduleRun: ...

    def trust_no_more(self) -> None:
        """What a store remembers has changed how a schedule went: from now on, it is reopened for another program, for
        each schedule with messages before, and whenever a caller gave up."""
        ...

    def session(self, number: int) -> str:
        """The id by which the store knows a session of the last schedule."""
        ...

    def close(self) -> None: ...


NewHistory = Callable[[ClientsProgram], ScheduleHistory]


class ChosenCourse:
    """The choices of one schedule, as they are made."""

    def __init__(self, strategy: Strategy, shorten: Callable[[str], str]) -> None:
        self._strategy, self._shorten = strategy, shorten
        self.codes: list[str] = []
        self.steps: list[LoggedStep] = []
        self.last = ""
        self.preemptions = 0

    @property
    def reads_footprints(self) -> bool:
        return self._strategy.reads_footprints

    def choose(self, options: Sequence[Choice]) -> int:
        index = self._strategy.pick(options, self.last)
        chosen = options[index]
        if len(options) > 1:
            self.codes.append(chosen.code)
            self.preemptions += preempts(options, self.last, index) if self.last else 0
        self.last = chosen.actor
        return index

    def picked(self, who: str) -> None:
        """Whom the engine has let go on, of several who waited; empty if it had no choice."""
        if who:
            self.codes.append(pick_code(who))
            self._strategy.picked(who)

    def did(self, footprint: Footprint) -> None:
        """What the step that was chosen last touched, under names that are the same in every schedule."""
        if self.reads_footprints:
            footprint = frozenset((self._shorten(place), write) for place, write in footprint)
        self._strategy.did(footprint)

    def note(self, actor: str, kind: str, label: str, told: str = "") -> None:
        self.steps.append(LoggedStep(actor, kind, self._shorten(label), told))

    @property
    def schedule(self) -> str:
        return "".join(self.codes)

    def run(self, history: ScheduleHistory) -> ScheduleRun:
        return ScheduleRun(history, self.schedule, self.steps, self.preemptions)


class SessionNames:
    """New sessions for each schedule, so that nothing of the schedule before is in them."""

    def __init__(self, letter: str) -> None:
        self._word = f"{letter}{time.time_ns() % 10**9:x}"
        self.schedule = 0

    def __call__(self, number: int) -> str:
        return f"{self._word}-{self.schedule}-{number}"

    def number(self, session: str) -> int:
        """The number in a session's name in the history: session-1."""
        return int(session.rpartition("-")[2])

    def is_past(self, key: object) -> bool:
        """Whether this names a session of an earlier schedule."""
        if isinstance(key, str):  # most are, and they are many
            return self._word in key and f"{self._word}-{self.schedule}-" not in key
        if isinstance(key, tuple):
            return any(map(self.is_past, key))
        return isinstance(key, bytes) and self.is_past(key.decode("utf-8", "replace"))

    def shorten(self, text: str) -> str:
        """The text with session ids as people read them, which are the same in every schedule."""
        return text.replace(f"{self._word}-{self.schedule}-", "s")
