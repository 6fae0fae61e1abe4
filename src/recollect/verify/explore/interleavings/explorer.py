"""Runs the programs on a target, judges every schedule, and keeps the smallest that fails.

It goes in rounds: first every program with at most one preemption, which finds most bugs; then every distinguishable
order of each; then more preemptions for those that could not be finished; and the time that is left goes into finishing
them. With callers that give up, more preemptions come before every order of two clients. The later rounds share their
time among the programs.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, cast

import msgspec

from recollect import private
from recollect.verify import engines
from recollect.verify.engines import Engine
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.password import scram_verifier
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.explore.interleavings.cpu_time import cpu_of_family
from recollect.verify.explore.interleavings.engine_waits import waits_of
from recollect.verify.explore.interleavings.judge import Judge, JudgedSchedule
from recollect.verify.explore.interleavings.other_threads import is_asleep
from recollect.verify.explore.interleavings.processes import ProcessWorld
from recollect.verify.explore.interleavings.program import BadProgram, ClientsProgram, ProgramOp, programs
from recollect.verify.explore.interleavings.results import (
    FailedSchedule,
    How,
    InterleavingsAsked,
    InterleavingsFound,
    Past,
    ProgramExplored,
)
from recollect.verify.explore.interleavings.schedule_history import AFTERWARDS, operation
from recollect.verify.explore.interleavings.search import (
    Attempts,
    ByPreemptions,
    Diverged,
    PickedOtherwise,
    Redundant,
    Replay,
    Strategy,
    replayed,
    started,
)
from recollect.verify.explore.interleavings.source_sets import SourceSets
from recollect.verify.explore.interleavings.tasks import TaskWorld
from recollect.verify.explore.interleavings.threads import ThreadWorld
from recollect.verify.explore.interleavings.world import LoggedStep, ScheduleRun, Stuck, Unfinished, World
from recollect.verify.host import folder
from recollect.verify.judging.half_turns import THEN
from recollect.verify.judging.op import Trait
from recollect.verify.target import form_trial, pipe
from recollect.verify.target.login import logged_in
from recollect.verify.target.registry import imports_of
from recollect.verify.target.workers import TargetBroken, Worker, Workers
from recollect.verify.wire import resp
from recollect.verify.wire.pgwire import Connection, literal

POLICIES = {"redis": "none", "postgres": "fsync-off", "sqlite": "wal-normal"}
"""Nothing breaks here, so nothing has to reach the disk."""

NOT_AGAIN = "on a store that had been used before, but not again: neither on a new one nor after the same use"
PARTS = (1, 4, 16)
"""So many of the latest schedules that a store was used for are tried before all of them."""
ROOM_BYTES = 1 << 28
"""For SQLite's file, which is in memory if there is plenty."""
FIRST_PARTS = 6
"""At first, a program gets a sixth of the time that is left: the smallest get most, and the last still get some."""
SMALLER_RUNS_MAX = 300
REPLAYS_SECONDS = 10.0
CLOSING_SHARE = 0.25
"""Of the time that is left, so much is for what comes afterwards: making smaller, confirming, closing."""

BACKENDS = (
    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
BUSY = f"{BACKENDS} AND state <> 'idle' AND state NOT LIKE 'idle in%' AND wait_event_type IS DISTINCT FROM 'Lock'"
Listener = Callable[[ProgramExplored], None]


class Explorer:
    """One engine and one target; `explore` is called once."""

    def __init__(self, asked: InterleavingsAsked) -> None:
        self._asked = asked
        self._held = ExitStack()
        self._folder = Path(asked.folder)
        name = asked.engine.partition("@")[0]
        self._policy = asked.policy or POLICIES.get(name)
        root = folder.in_memory(ROOM_BYTES) if name == "sqlite" else None
        self._engine: Engine = engines.create(asked.engine, self._policy, root=root)
        self._held.callback(self._engine.close)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        asked = self._asked
        self._endpoint = self._engine.start()
        self._held.enter_context(logged_in(self._endpoint))
        self._watch_locks()
        self._waits = waits_of(self._engine, self._held)
        self._workers = Workers(self._folder / "target.log", imports_of(asked.target, self._endpoint.engine))
        self._held.callback(self._workers.close_all)
        self._reader: Worker
        self._reader, ready = self._workers.start(asked.target, self._endpoint, prepare=True)
        self.ready = form_trial.settled(self._workers, asked.target, self._endpoint, ready)
        if "one_process" in self.ready.traits:
            raise TargetBroken(
                f"{asked.target} claims one process at a time (one_process), and orders are judged by what a second "
                "process reads"
            )
        self._judge = Judge(
            asked.target,
            self._endpoint.engine,
            self._endpoint.version,
            self._endpoint.policy,
            tuple(cast(list[Trait], self.ready.traits)),
            frozenset(self.ready.expected_errors),
            self.ready.keeps_last,
        )
        self.how: How = asked.how
        if asked.how == "auto":
            self.how = "tasks" if self.ready.is_async else "threads"
        self._world = self._make_world()
        self._held.callback(lambda: self._world.close())

    def _watch_locks(self) -> None:
        """PostgreSQL looks for a deadlock once in each wait: at once, so that whoever closes the circle is refused,
        however long the others have waited. Nothing of its own accord takes locks meanwhile."""
        if isinstance(self._engine, PostgresEngine):
            self._watch = watch = Connection(self._engine.address)
            self._held.callback(watch.close)
            watch.ask("ALTER SYSTEM SET deadlock_timeout = '1ms'")
            watch.ask("ALTER SYSTEM SET autovacuum = off")
            watch.ask("SELECT pg_reload_conf()")
            # A cancelled caller costs a connection, of which logging in would be a good part.
            verifier = literal(scram_verifier(self._engine.password, iterations=1))
            watch.ask(f"ALTER ROLE {cluster.SUPERUSER} PASSWORD {verifier}")

    def _idleness(self) -> Callable[[], bool]:
        """Says whether the engine has nothing to do: what was asked is answered, or waits for a lock."""
        if isinstance(self._engine, PostgresEngine):
            watch = self._watch
            return lambda: all(is_asleep(str(row[0])) for row in watch.ask(BACKENDS)) and not watch.ask(BUSY)
        if isinstance(self._engine, RedisEngine):
            redis = resp.Connection(self._engine.address)
            self._held.callback(redis.close)
            # One thread serves all: what had come before the first is answered before the second.
            return lambda: all(redis.ask("PING") is not None for _ in range(2))
        return lambda: True

    def _make_world(self) -> World:
        asked = self._asked
        if asked.cancel and self.how != "tasks":
            raise TargetBroken(f"{asked.target}: --cancel is for tasks, and these are {self.how}")
        if self.how == "processes":
            if self._endpoint.port is None and self._endpoint.engine != "sqlite":
                raise TargetBroken(
                    f"{asked.engine} is embedded: no gate can stand between it and its processes"
                )
            return ProcessWorld(
                asked.target,
                self._endpoint,
                self._judge.history,
                self._workers,
                waits=self._waits,
            )
        if self.how == "threads":
            if self.ready.is_async:
                raise TargetBroken(f"{asked.target} is asynchronous: explore its tasks, not threads")
            return ThreadWorld(
                asked.target, self._endpoint, self._judge.history, self._idleness(), form=self._workers.form
            )
        return TaskWorld(
            asked.target,
            self._endpoint,
            self._judge.history,
            cancellations=int(asked.cancel),
            waits=self._waits,
            form=self._workers.form,
        )

    def close(self) -> None:
        self._held.close()

    # ---- all programs

    def explore(self, listener: Listener = lambda one: None) -> InterleavingsFound:
        """Runs until a schedule fails, nothing is left, or time is up; tells `listener` when a program is done."""
        began = time.perf_counter()
        found = self._found()
        pursuits = [_Pursuit(program) for program in self._programs()]
        found.programs = [pursuit.explored for pursuit in pursuits]
        try:
            self._world.open()
            end_s = time.perf_counter() + _at_most(self._asked.seconds, self._asked)
            for pursuit, strategy, end in _rounds(pursuits, self._asked, self.how, end_s):
                if self._pursue(pursuit, strategy, end) is not None:
                    break
                listener(pursuit.explored)
            for pursuit in pursuits:
                if pursuit.explored.failure is not None:
                    self._make_smaller(pursuit)
                    self._confirm(pursuit)
                    listener(pursuit.explored)
        except Stuck as stuck:
            found.trouble = str(stuck)
        found.unseen = self._world.unseen
        found.elapsed_s = time.perf_counter() - began
        return found

    def _found(self) -> InterleavingsFound:
        return InterleavingsFound(
            asked=self._asked,
            how=self.how,
            engine_version=self._endpoint.version,
            policy=self._endpoint.policy,
        )

    def _programs(self) -> list[ClientsProgram]:
        if self._asked.programs:
            return [self._checked(ClientsProgram.parse(text)) for text in self._asked.programs]
        return programs(self.ready.abilities, cancel=self._asked.cancel)

    def _checked(self, program: ClientsProgram) -> ClientsProgram:
        if (lack := program.lacks(self.ready.abilities)) is not None:
            raise BadProgram(f"program {str(program)!r}: {lack}")
        return program

    def _pursue(self, pursuit: _Pursuit, strategy: Strategy, end: float) -> FailedSchedule | None:
        """Runs the strategy's schedules of one program; marks what was finished."""
        explored, began, used_s = pursuit.explored, time.perf_counter(), cpu_of_family()
        ended = True
        for found in self._runs(pursuit, strategy, end):
            if found is None:
                ended = False
                break
            run, judged = found
            if judged.doubt is not None:
                explored.doubt = judged.doubt
            if judged.anomalies and (not self._asked.wanted or self._asked.wanted in judged.names):
                past: Past = ()
                if self._world.earlier:
                    again = self._after_as_little(pursuit.program, run, judged)
                    if again is None:
                        explored.doubt = f"{min(judged.names)} was seen {NOT_AGAIN}"
                        continue
                    run, judged, past = again
                explored.failure = self._failed(pursuit.program, run, judged, explored.schedules, past)
                ended = False
                break
        if ended and isinstance(strategy, ByPreemptions):
            explored.bound = max(explored.bound, strategy.bound)
        explored.exhausted |= ended and isinstance(strategy, SourceSets)
        explored.seconds += time.perf_counter() - began
        explored.cpu_s += cpu_of_family() - used_s
        explored.histories = len(pursuit.histories)
        return explored.failure

    def _after_as_little(
        self, program: ClientsProgram, run: ScheduleRun, judged: JudgedSchedule
    ) -> _Again | None:
        """The failure on a store without a past; or else, each time, on one with the same past, or the latest part of
        it. None if it does not come again."""
        past = tuple((str(use.program), use.schedule) for use in self._world.earlier)
        if (again := self._after((), program, run.schedule, judged.names)) is not None:
            return again
        for part in (*(past[-size:] for size in PARTS if size < len(past)), past):
            if (again := self._always_after(part, program, run.schedule, judged.names)) is not None:
                return again
        self._world.trust_no_more()
        return None

    def _always_after(
        self, past: Past, program: ClientsProgram, schedule: str, names: Collection[str]
    ) -> _Again | None:
        again = self._after(past, program, schedule, names)
        for _ in range(1, self._asked.confirmations):
            again = again and self._after(past, program, schedule, names)
        return again

    def _after(
        self, past: Past, program: ClientsProgram, schedule: str, names: Collection[str]
    ) -> _Again | None:
        """A failure as it comes again on a new store on which these were run before; None if it does not."""
        with contextlib.suppress(Redundant, Diverged, Unfinished):
            run = self._run_after(past, program, started(Replay(schedule)))
            judged = self._judged(program, run)
            if not judged.names.isdisjoint(names):
                return _Again(run, judged, past)
        return None

    def _run_after(self, past: Past, program: ClientsProgram, strategy: Strategy) -> ScheduleRun:
        """On a new store; what comes before may end in whatever way."""
        for place, (earlier, schedule) in enumerate(past):
            with contextlib.suppress(Redundant, Diverged, Unfinished):
                self._world.run(ClientsProgram.parse(earlier), started(Replay(schedule)), fresh=not place)
        return self._world.run(program, strategy, fresh=not past)

    def _runs(
        self, pursuit: _Pursuit, strategy: Strategy, end: float
    ) -> Iterator[tuple[ScheduleRun, JudgedSchedule] | None]:
        """Every schedule of the strategy that could be judged; None when time is up."""
        explored, attempts = pursuit.explored, Attempts()
        while strategy.start():
            if time.perf_counter() > end:
                strategy.again()
                yield None
                return
            explored.schedules += 1
            try:
                run = self._world.run(pursuit.program, strategy)
            except Redundant:
                explored.redundant += 1
                if self._world.has_grown:
                    strategy.again()
                continue
            except Unfinished:
                explored.unfinished += 1
                continue
            except Diverged as reason:
                if self._world.has_grown:
                    strategy.again()
                    continue
                by_engine = isinstance(reason, PickedOtherwise)
                explored.picked_otherwise += by_engine
                explored.repeated += not by_engine
                if attempts.allows(reason):
                    strategy.again()
                else:
                    explored.diverged += 1
                    attempts.begin()
                continue
            attempts.begin()
            if self._world.has_grown:
                strategy.again()
            explored.judged += 1
            judged = self._judged(pursuit.program, run)
            pursuit.histories.add(judged.key)
            yield run, judged

    def _judged(self, program: ClientsProgram, run: ScheduleRun) -> JudgedSchedule:
        """Judges one schedule; what another process reads afterwards is part of its history."""
        for session in program.sessions:
            name = f" in session {session}" if session else ""

            def note(kind: str, label: str, name: str = name) -> None:
                if kind == "end":
                    run.steps.append(LoggedStep("later", kind, label + name))

            work = operation(run.history, AFTERWARDS, ProgramOp("r", session), note)
            request = next(work)
            assert isinstance(request, pipe.Read)
            request.session = self._world.session(session)
            self._reader.send(request)
            with contextlib.suppress(StopIteration):
                work.send(self._reader.receive())
        return self._judge.judge(run.history)

    def _failed(
        self, program: ClientsProgram, run: ScheduleRun, judged: JudgedSchedule, at: int, past: Past = ()
    ) -> FailedSchedule:
        failed = FailedSchedule(
            program=str(program),
            schedule=run.schedule,
            past=past,
            anomalies=judged.anomalies,
            steps=tuple(run.steps),
            preemptions=run.preemptions,
            found_at=at,
        )
        return msgspec.structs.replace(failed, history=self._save(run, failed))

    def _save(self, run: ScheduleRun, failed: FailedSchedule) -> str:
        """The same history with its schedule in the header."""
        file = self._folder / "history.jsonl"
        _, _, events = run.history.file.getvalue().partition(b"\n")
        header = msgspec.structs.replace(
            run.history.writer.header, program=failed.programs, schedule=failed.schedules
        )
        private.write_artifact(file, (msgspec.json.encode(header) + b"\n" + events).decode())
        return str(file)

    # ---- one failure

    def _make_smaller(self, pursuit: _Pursuit) -> None:
        """Tries fewer operations as long as the same anomaly is found, then fewer preemptions."""
        failure = pursuit.explored.failure
        assert failure is not None
        end = time.perf_counter() + _at_most(REPLAYS_SECONDS, self._asked)
        if failure.past:
            pursuit.explored.failure = self._with_less_before(failure, end)
            return
        smaller = True
        while smaller and time.perf_counter() < end:
            program = ClientsProgram.parse(failure.program)
            smaller = False
            for fewer in program.smaller():
                if fewer.lacks(self.ready.abilities) is None and (
                    found := self._search(fewer, failure, max(1, failure.preemptions), end)
                ):
                    failure, smaller = found, True
                    break
        if failure.preemptions > 1:
            program = ClientsProgram.parse(failure.program)
            failure = self._search(program, failure, failure.preemptions - 1, end) or failure
        pursuit.explored.failure = failure

    def _with_less_before(self, failure: FailedSchedule, end: float) -> FailedSchedule:
        """Leaves out what need not have been run before: halves, then quarters, down to single schedules."""
        program, size = ClientsProgram.parse(failure.program), len(failure.past) // 2
        while size:
            place = 0
            while place < len(failure.past) and time.perf_counter() < end:
                fewer = failure.past[:place] + failure.past[place + size :]
                if fewer and (again := self._always_after(fewer, program, failure.schedule, failure.names)):
                    failure = self._failed(program, again.run, again.judged, failure.found_at, fewer)
                else:
                    place += size
            size //= 2
        return failure

    def _search(
        self, program: ClientsProgram, failure: FailedSchedule, bound: int, end: float
    ) -> FailedSchedule | None:
        """Looks for the same anomaly in another program, or with fewer preemptions."""
        pursuit = _Pursuit(program)
        for found in self._runs(pursuit, ByPreemptions(bound), end):
            if found is None or pursuit.explored.schedules > SMALLER_RUNS_MAX:
                return None
            run, judged = found
            if failure.anomalies[0].name not in judged.names:
                continue
            if self._world.earlier and self._after((), program, run.schedule, judged.names) is None:
                self._world.trust_no_more()
                continue
            return self._failed(program, run, judged, failure.found_at)
        return None

    def _confirm(self, pursuit: _Pursuit) -> None:
        """Replays the schedule on stores that have never been used."""
        failure = pursuit.explored.failure
        assert failure is not None
        same = 0
        for _ in range(self._asked.confirmations):
            with contextlib.suppress(Redundant, Diverged, Unfinished):
                program = ClientsProgram.parse(failure.program)
                _, judged = self._replayed(failure.past, program, failure.schedule)
                same += bool(judged.names & set(failure.names))
        pursuit.explored.failure = msgspec.structs.replace(failure, confirmed=same)

    def _replayed(
        self, past: Past, program: ClientsProgram, schedule: str
    ) -> tuple[ScheduleRun, JudgedSchedule]:
        run = replayed(schedule, lambda strategy: self._run_after(past, program, strategy))
        return run, self._judged(program, run)

    def replay(self) -> tuple[InterleavingsFound, tuple[LoggedStep, ...]]:
        """The one schedule that was asked for, and what happened in it."""
        assert self._asked.replay is not None
        *before, program = [
            self._checked(ClientsProgram.parse(text)) for text in self._asked.programs[0].split(THEN)
        ]
        *schedules, schedule = self._asked.replay.split(THEN)
        past = tuple(zip(map(str, before), schedules, strict=True))
        explored = ProgramExplored(program=str(program), schedules=1)
        found = self._found()
        found.programs = [explored]
        try:
            run, judged = self._replayed(past, program, schedule)
        except Diverged as diverged:
            found.trouble = f"the schedule {schedule} does not fit: {diverged}"
            return found, ()
        except (Unfinished, Stuck) as reason:
            found.trouble = str(reason)
            return found, ()
        explored.judged = 1
        if judged.anomalies:
            failure = self._failed(program, run, judged, 1, past)
            explored.failure = msgspec.structs.replace(failure, confirmed=1)
        return found, tuple(run.steps)


class _Again(NamedTuple):
    """A failure that has come again, and what was run before it on the same store."""

    run: ScheduleRun
    judged: JudgedSchedule
    past: Past


class _Pursuit:
    """One program on its way through the rounds."""

    def __init__(self, program: ClientsProgram) -> None:
        self.program = program
        self.explored = ProgramExplored(program=str(program))
        self.histories: set[bytes] = set()
        self.by_preemptions = ByPreemptions(1)
        self.exhausting = SourceSets()


def _at_most(seconds: float, asked: InterleavingsAsked) -> float:
    """Less, if all of it is to be over before."""
    if asked.until_s is None:
        return seconds
    return max(0.0, min(seconds, (1 - CLOSING_SHARE) * (asked.until_s - time.monotonic())))


def _rounds(
    pursuits: list[_Pursuit], asked: InterleavingsAsked, how: How, end: float
) -> Iterator[tuple[_Pursuit, Strategy, float]]:
    """Which program is explored next, how, and until when."""
    for pursuit, until in itertools.chain(_shares(pursuits, end, FIRST_PARTS), _shares(pursuits, end)):
        pursuit.by_preemptions.bound = min(1, asked.bound)
        # One client makes nobody wait: all that it can do has no preemption.
        is_alone = how == "tasks" and len(pursuit.program.clients) == 1
        yield pursuit, pursuit.exhausting if is_alone else pursuit.by_preemptions, until
    # With a caller that gives up, those of two clients are far more.
    if how != "threads" and not asked.cancel:
        for pursuit, until in _shares(pursuits, end):
            yield pursuit, pursuit.exhausting, until
    for bound in range(2, asked.bound + 1):
        left = [pursuit for pursuit in pursuits if not pursuit.explored.exhausted]
        for pursuit, until in _shares(left, end):
            pursuit.by_preemptions.bound = bound
            yield pursuit, pursuit.by_preemptions, until
    if how != "threads":
        left = [pursuit for pursuit in pursuits if not pursuit.explored.exhausted]
        for pursuit, until in _shares(left, end):
            yield pursuit, pursuit.exhausting, until


def _shares(
    pursuits: list[_Pursuit], end: float, parts_max: int | None = None
) -> Iterator[tuple[_Pursuit, float]]:
    """The remaining time in equal parts, or in at most so many: then the first programs get more. What one program
    leaves over is for those after it."""
    for done, pursuit in enumerate(pursuits):
        now, parts = time.perf_counter(), len(pursuits) - done
        yield pursuit, now + max(0.0, end - now) / min(parts, parts_max or parts)
