"""What an exploration found, as it is sent over a pipe and written to a document."""

from __future__ import annotations

from typing import Literal

import msgspec

from recollect.printable import counted
from recollect.verify.explore.interleavings.world import LoggedStep
from recollect.verify.judging.half_turns import THEN
from recollect.verify.judging.verdict import Anomaly

How = Literal["auto", "tasks", "threads", "processes"]
HOWS: tuple[How, ...] = ("auto", "tasks", "threads", "processes")
"""`auto` is tasks for an asynchronous store, and threads for a synchronous one."""
Past = tuple[tuple[str, str], ...]
"""Programs and their schedules, run one after the other on the same store."""
CONFIRMATIONS = 3


class InterleavingsAsked(msgspec.Struct, frozen=True):
    """What to explore."""

    target: str
    engine: str
    how: How
    policy: str | None = None
    programs: tuple[str, ...] = ()
    """Empty: those that the target's abilities allow."""
    cancel: bool = False
    bound: int = 2
    seconds: float = 30.0
    until_s: float | None = None
    """When all of it is to be over, by the monotonic clock of this machine: with starting, and with making what was
    found smaller, which take long on a busy one."""
    replay: str | None = None
    """One schedule of a single program, instead of all."""
    confirmations: int = CONFIRMATIONS
    """How often what was found is replayed on a fresh store."""
    wanted: str = ""
    """Go on until this anomaly is found."""
    folder: str = ""
    """For the target's own output, and for the history of what fails."""
    path: tuple[str, ...] = ()
    """Folders that modules are imported from."""


class FailedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule that shows something wrong."""

    program: str
    schedule: str
    past: Past = ()
    """What has to be run before it on the same store."""
    anomalies: tuple[Anomaly, ...]
    steps: tuple[LoggedStep, ...]
    preemptions: int
    found_at: int
    """How many schedules of the program were run until then."""
    confirmed: int = 0
    """How many replays on fresh stores showed the same anomaly."""
    history: str = ""
    """The file of its history, in the usual format."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(anomaly.name for anomaly in self.anomalies))

    @property
    def programs(self) -> str:
        """With those before it, as `--program` takes them."""
        return f"{THEN} ".join([*(program for program, _ in self.past), self.program])

    @property
    def schedules(self) -> str:
        """The same for `--replay`."""
        return THEN.join([*(schedule for _, schedule in self.past), self.schedule])


class ProgramExplored(msgspec.Struct, kw_only=True):
    """How much of one program was tried."""

    program: str
    schedules: int = 0
    judged: int = 0
    redundant: int = 0
    """Runs that turned out to be the same as another, and were cut short."""
    histories: int = 0
    """How many different histories there were."""
    exhausted: bool = False
    """Every distinguishable schedule was run."""
    bound: int = -1
    """Every schedule with at most this many preemptions was run."""
    diverged: int = 0
    """Schedules that went differently each time they were repeated."""
    repeated: int = 0
    """Runs that went differently from the one they repeated, and were tried again."""
    picked_otherwise: int = 0
    """Runs in which the engine picked somebody else for a lock, and that were tried again."""
    unfinished: int = 0
    doubt: str | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Of the exploring process, its clients and the engine."""
    failure: FailedSchedule | None = None

    @property
    def coverage(self) -> str:
        if self.exhausted:
            return "every distinguishable order"
        if self.bound >= 0:
            return f"every order with at most {self.bound} preemption{'' if self.bound == 1 else 's'}"
        return "some of the orders" if self.judged else "nothing (the time ended)"

    @property
    def gap(self) -> str | None:
        """Why nothing can be said about orders that should have been tried, or None."""
        if self.doubt is not None:
            return self.doubt
        if self.diverged:
            return f"{counted(self.diverged, 'schedule')} went differently when repeated"
        if self.unfinished:
            do = "does" if self.unfinished == 1 else "do"
            return f"{counted(self.unfinished, 'schedule')} {do} not end: a client asks the same question over and over"
        return None


class InterleavingsFound(msgspec.Struct, kw_only=True):
    """The whole exploration of one target, one way."""

    asked: InterleavingsAsked
    how: How = "auto"
    engine_version: str = ""
    policy: str = ""
    programs: list[ProgramExplored] = []
    unseen: str | None = None
    """What the store did out of sight."""
    trouble: str | None = None
    """Why it could not be explored."""
    elapsed_s: float = 0.0

    @property
    def failure(self) -> FailedSchedule | None:
        return next((one.failure for one in self.programs if one.failure is not None), None)

    @property
    def is_of_one_thread(self) -> bool:
        """Whether the store raised only because another thread than its own called it, as `sqlite3` does by default."""
        failure = self.failure
        if self.how != "threads" or failure is None or failure.names[0] != "raised":
            return False
        return "|" not in failure.program and "thread" in failure.anomalies[0].sentence

    @property
    def status(self) -> Literal["held", "violated", "unknown"]:
        failure = self.failure
        if failure is not None and failure.confirmed:
            return "violated"
        return "unknown" if self.reason is not None else "held"

    @property
    def reason(self) -> str | None:
        """Why the exploration cannot say `held`, or None."""
        if self.trouble is not None:
            return self.trouble
        if self.failure is not None and self.failure.confirmed:
            return None
        if self.failure is not None:
            return f"{self.failure.names[0]} was seen once, and in none of {self.asked.confirmations} replays"
        if self.unseen is not None:
            return f"{self.unseen}: the order of what it does there could not be chosen"
        gaps = [f"{one.program}: {one.gap}" for one in self.programs if one.gap is not None]
        if gaps:
            return "; ".join(gaps[:3])
        if not self.programs:
            return "no program fits what the target can do"
        return self._cut_short

    @property
    def is_cut_short(self) -> bool:
        """Whether more time is all that is missing."""
        return self.reason is not None and self.reason == self._cut_short

    @property
    def _cut_short(self) -> str | None:
        """Some orders are not enough: each program must have been tried in full up to some number of preemptions."""
        if self.asked.replay is not None or not self.programs:
            return None
        if not any(one.judged for one in self.programs):
            return "the time ended before one schedule was judged"
        left = [one.program for one in self.programs if not one.exhausted and one.bound < 0]
        if not left:
            return None
        count = f"{len(left)} of {counted(len(self.programs), 'program')}"
        return f"the time ended before every order with one preemption was tried, in {count}: {', '.join(left[:3])}"

    @property
    def coverage(self) -> str:
        """What was tried, in one sentence."""
        ended_early = self.failure is not None
        kinds = [one.coverage for one in self.programs if one.schedules or not ended_early]
        if not kinds:
            return "nothing"
        told = [f"{kind} of {kinds.count(kind)}" for kind in dict.fromkeys(kinds)]
        count = sum(one.schedules for one in self.programs)
        all_of_them = counted(len(kinds), "program")
        which = f"{kinds[0]} of {all_of_them}" if len(told) == 1 else f"{', '.join(told)} of {all_of_them}"
        return f"{which}; {counted(count, 'schedule')}"
