"""What is planted where, and the name that it has to be caught under; beside it, what must not be accused."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from recollect.verify.explore.interleavings.results import CONFIRMATIONS, How, InterleavingsAsked
from recollect.verify.explore.interleavings.words import AllDone, explore_interleavings

HERE = Path(__file__).parents[2]


class Cell(NamedTuple):
    """One store, explored one way. Without a name, nothing is wrong with it."""

    store: str
    engine: str
    how: How
    names: tuple[str, ...] = ()
    """Any of them, where two are true."""
    cancel: bool = False
    seconds: float = 4.0
    """In the suite; what is wrong shows within one preemption, mostly."""
    policy: str | None = None

    @property
    def target(self) -> str:
        return self.store if ":" not in self.store else f"tests.interleavings.planted.{self.store}"

    @property
    def title(self) -> str:
        policy = f"-{self.policy}" if self.policy else ""
        return f"{self.store}{policy}-{self.how}{'-cancel' if self.cancel else ''}"

    def explore(
        self,
        folder: Path,
        seconds: float | None = None,
        confirmations: int = CONFIRMATIONS,
        programs: tuple[str, ...] = (),
    ) -> AllDone:
        return explore_interleavings(
            InterleavingsAsked(
                target=self.target,
                engine=self.engine,
                how=self.how,
                cancel=self.cancel,
                policy=self.policy,
                programs=programs,
                seconds=seconds or self.seconds,
                confirmations=confirmations,
                folder=str(folder),
                path=(str(HERE),),
            )
        )


GONE = ("lost-update", "dropped")
"""Which of the two depends on whether somebody provably wrote over it."""
TRIMMED = ("trimmed", "dropped")
LATE = ("stale-read", "own-write-missing", *GONE)

IN_THREADS = "delete-full"
"""With this policy our stores leave SQLite's work to threads; with a log, short transactions run in the event loop."""
OURS = ("our_own:memories", "our_own:summarised", "our_own:chat", "our_own:chat_memories")

OTHERS = ("raised", "unreadable", "cross-session-leak")
"""An answer that was somebody else's."""

PLANTED = (
    Cell("redis_tasks:OneValue", "redis", "tasks", GONE),
    Cell("replacing:in_two_steps", "redis", "tasks", ("torn-turn",)),
    Cell("redis_tasks:ReentrantLock", "redis", "tasks", GONE),
    Cell("redis_tasks:GivesUpWaiting", "redis", "tasks", GONE),
    Cell("redis_tasks:OneConnection", "redis", "tasks", GONE),
    Cell("redis_tasks:CreatedOnce", "redis", "tasks", GONE),
    Cell("redis_tasks:NumbersInMemory", "redis", "tasks", GONE),
    Cell("redis_tasks:CountThenInsert", "redis", "tasks", GONE),
    Cell("redis_tasks:CheckThenInsert", "redis", "tasks", ("duplicate",)),
    Cell("redis_tasks:StaleCache", "redis", "tasks", LATE),
    Cell("redis_tasks:CachedByVersion", "redis", "tasks", LATE),
    Cell("redis_tasks:TwoWrites", "redis", "tasks", ("torn-turn",)),
    Cell("redis_tasks:CompactsInTwoSteps", "redis", "tasks", GONE),
    Cell("redis_tasks:CompactsEveryTenth", "redis", "tasks", GONE),
    Cell("redis_tasks:CompactsEveryTenthOfItsOwn", "redis", "tasks", GONE),
    Cell("redis_tasks:WriteBehind", "redis", "tasks", ("reorder", *LATE)),
    Cell("redis_tasks:SharedPipeline", "redis", "tasks", ("raised", *GONE)),
    Cell("redis_tasks:RetriesWhenSlow", "redis", "tasks", ("duplicate",)),
    Cell("redis_tasks:SameLength", "redis", "tasks", ("resurrected",)),
    Cell("redis_tasks:FracturedContext", "redis", "tasks", ("fractured-read",)),
    Cell("redis_tasks:SavedWhole", "redis", "tasks", GONE),
    Cell("redis_tasks:TurnsAway", "redis", "tasks", ("raised",)),
    Cell("redis_tasks:SharedStream", "redis", "tasks", ("raised", "hang", "unreadable", "cross-session-leak")),
    Cell("redis_used:HurriesLater", "redis", "tasks", ("reorder", *LATE)),
    Cell("redis_tasks:TwoWrites", "redis", "tasks", ("torn-turn",), cancel=True),
    Cell("redis_tasks:CancelledConnection", "redis", "tasks", OTHERS, cancel=True),
    Cell("redis_turns:AsksBeforeItStops", "redis", "tasks", ("hang",)),
    Cell("redis_turns:LockAfterAYield", "redis", "tasks", GONE),
    Cell("redis_tasks:LockKept", "redis", "tasks", ("hang",), cancel=True),
    Cell("redis_used:FailsLater", "redis", "tasks", ("raised",), cancel=True),
    Cell("postgres_tasks:max_then_insert", "postgres", "tasks", GONE),
    Cell("postgres_tasks:lock_before_commit", "postgres", "tasks", GONE),
    Cell("postgres_tasks:autocommit_turn", "postgres", "tasks", ("torn-turn",)),
    Cell("postgres_tasks:shared_connection", "postgres", "tasks", ("raised",)),
    Cell("postgres_tasks:deadlock_prone", "postgres", "tasks", ("raised",)),
    Cell("sqlite_tasks:PlaceThenRow", "sqlite", "tasks", GONE),
    Cell("sqlite_tasks:SharedTransaction", "sqlite", "tasks", ("raised",)),
    Cell("sqlite_tasks:LooksBeforeItBegins", "sqlite", "tasks", GONE),
    Cell("sqlite_tasks:UncommittedIsSeen", "sqlite", "tasks", ("torn-turn",)),
    Cell("sqlite_tasks:LeftOpen", "sqlite", "tasks", ("raised",), cancel=True),
    Cell("redis_tasks:OneValue", "redis", "processes", GONE),
    Cell("redis_tasks:LockedValue", "redis", "processes", GONE),
    Cell("redis_tasks:CountThenInsert", "redis", "processes", GONE),
    Cell("redis_tasks:CompactsEveryTenth", "redis", "processes", GONE),
    Cell("redis_tasks:CompactsEveryTenthOfItsOwn", "redis", "processes", GONE),
    Cell("redis_tasks:StaleCache", "redis", "processes", LATE),
    Cell("redis_tasks:TwoWrites", "redis", "processes", ("torn-turn",)),
    Cell("redis_tasks:SameLength", "redis", "processes", ("resurrected",)),
    Cell("redis_tasks:SavedWhole", "redis", "processes", GONE),
    Cell("windows:OneFewer", "redis", "processes", TRIMMED),
    Cell("postgres_tasks:max_then_insert", "postgres", "processes", GONE),
    Cell("postgres_tasks:lock_before_commit", "postgres", "processes", GONE),
    Cell("postgres_tasks:deadlock_prone", "postgres", "processes", ("raised",)),
    Cell("sqlite_tasks:PlaceThenRow", "sqlite", "processes", GONE),
    Cell("sqlite_tasks:LockPerProcess", "sqlite", "processes", GONE),
    Cell("sqlite_tasks:LockedTransaction", "sqlite", "processes", ("raised",)),
    Cell("with_threads:Counter", "redis", "threads", GONE),
    Cell("windows:OneFewer", "redis", "threads", TRIMMED),
    Cell("with_threads:LockPerSession", "redis", "threads", GONE),
    Cell("with_threads:CompactsEveryTenth", "redis", "threads", GONE),
    Cell("with_threads:OneConnection", "sqlite", "threads", GONE),
    Cell("with_threads:WritersOnly", "sqlite", "threads", ("torn-turn",)),
    Cell("with_threads:RollsBack", "sqlite", "threads", (*GONE, "torn-turn")),
    Cell("with_threads:LockBeforeCommit", "sqlite", "threads", GONE),
    Cell("with_threads:TwoLocks", "sqlite", "threads", ("hang",)),
    Cell("with_threads:PausesBetween", "sqlite", "threads", GONE),
    Cell("our_own:two_summarisers", "postgres", "tasks", ("duplicate",)),
    Cell("our_own:two_summarisers", "postgres", "processes", ("duplicate",)),
    Cell("our_own:two_summarisers", "sqlite", "tasks", ("duplicate",), policy=IN_THREADS),
    Cell("our_own:chat_looks_first", "postgres", "tasks", ("duplicate",)),
    Cell("our_own:chat_forgets_once", "sqlite", "tasks", ("raised",), policy=IN_THREADS),
    Cell("our_own:chat_looks_first", "sqlite", "tasks", ("duplicate",), policy=IN_THREADS),
)  # fmt: skip

CORRECT = (
    Cell("redis_tasks:OneCommand", "redis", "tasks"),
    Cell("redis_tasks:OneCommand", "redis", "tasks", cancel=True),
    Cell("redis_tasks:WatchedValue", "redis", "tasks"),
    Cell("redis_tasks:LockedValue", "redis", "tasks"),
    Cell("redis_tasks:TurnsAwayAsDeclared", "redis", "tasks"),
    Cell("redis_tasks:LockOfTheCall", "redis", "tasks"),
    Cell("redis_tasks:CountedInTheEngine", "redis", "tasks"),
    Cell("redis_tasks:CheckedInTheEngine", "redis", "tasks"),
    Cell("redis_tasks:SaysWhetherItWasNew", "redis", "tasks"),
    Cell("redis_tasks:GivesUpWhenSlow", "redis", "tasks"),
    Cell("redis_tasks:ReadsTwice", "redis", "tasks"),
    Cell("redis_turns:WritesForAll", "redis", "tasks"),
    Cell("redis_turns:OneLockAfterAYield", "redis", "tasks"),
    Cell("redis_turns:YieldsNowAndThen", "redis", "tasks"),
    Cell("redis_tasks:Forgetting", "redis", "tasks"),
    Cell("redis_tasks:WholeContext", "redis", "tasks"),
    Cell("redis_tasks:OpensWhenBusy", "redis", "tasks"),
    Cell("redis_used:CountsItsAppends", "redis", "tasks"),
    Cell("replacing:in_one_step", "redis", "tasks"),
    Cell("redis_tasks:ClosesWhenCancelled", "redis", "tasks", cancel=True),
    Cell("redis_tasks:LockGivenBack", "redis", "tasks", cancel=True),
    Cell("redis_used:FinishedAnyway", "redis", "tasks", cancel=True),
    Cell("postgres_tasks:counter_is_the_lock", "postgres", "tasks"),
    Cell("postgres_tasks:advisory_lock", "postgres", "tasks"),
    Cell("sqlite_tasks:OneJob", "sqlite", "tasks"),
    Cell("sqlite_tasks:LockedTransaction", "sqlite", "tasks"),
    Cell("sqlite_tasks:UndoneIfGivenUp", "sqlite", "tasks", cancel=True),
    Cell("sqlite_tasks:ConnectionPerCall", "sqlite", "tasks"),
    Cell("redis_tasks:OneCommand", "redis", "processes"),
    Cell("redis_tasks:WatchedValue", "redis", "processes"),
    Cell("redis_tasks:LockOfTheCall", "redis", "processes"),
    Cell("windows:AsDeclared", "redis", "processes"),
    Cell("postgres_tasks:counter_is_the_lock", "postgres", "processes"),
    Cell("postgres_tasks:advisory_lock", "postgres", "processes"),
    Cell("sqlite_tasks:OneJob", "sqlite", "processes"),
    Cell("with_threads:CounterInTheEngine", "redis", "threads"),
    Cell("windows:AsDeclared", "redis", "threads"),
    Cell("with_threads:OneLock", "sqlite", "threads"),
    Cell("with_threads:LockOfTheClass", "sqlite", "threads"),
    Cell("with_threads:TriesAgain", "sqlite", "threads"),
    *(
        Cell(name, engine, "tasks", policy=policy, cancel=cancel)
        for name in OURS
        for engine, policy in (("postgres", None), ("sqlite", None), ("sqlite", IN_THREADS))
        for cancel in (False, True)
    ),
    *(Cell(name, engine, "processes") for name in OURS for engine in ("postgres", "sqlite")),
    Cell("redis", "redis", "tasks"),
    Cell("redis", "redis", "tasks", cancel=True),
    Cell("redis", "redis", "processes"),
    Cell("postgres", "postgres", "tasks"),
    Cell("postgres", "postgres", "tasks", cancel=True),
    Cell("postgres", "postgres", "processes"),
    Cell("sqlite", "sqlite", "tasks"),
    Cell("sqlite", "sqlite", "tasks", cancel=True),
    Cell("sqlite", "sqlite", "processes"),
    Cell("sqlite", "sqlite", "processes", policy=IN_THREADS),
    Cell("sqlite", "sqlite", "tasks", policy=IN_THREADS),
    Cell("sqlite", "sqlite", "tasks", cancel=True, policy=IN_THREADS),
)
