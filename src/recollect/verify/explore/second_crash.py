"""A crash during recovery: `recollect explore --depth 2`.

A recovery writes too: it cuts torn tails, replays logs, migrates what an older release left. If the engine is killed,
or the power fails, in the middle of that, the next start has to cope with what it finds then. So the recovery from a
first crash state is recorded as the run itself was: the engine starts on that disk, the store is opened by its factory
and each session is read. Every state that a crash during those calls could leave is a second crash state; it is laid
out, recovered and judged against what had been acknowledged before the first crash. "Nothing lost" is the engine killed
at that point, the other kinds are power losses.

Only first states that held (or lost what the documentation allows) are recovered: the others are findings already; and
only those before which something had been acknowledged: without it nothing can be lost. What
recovery did not write gives no state: a disk that the first exploration has judged, or that another recovery has
left, is not judged again.

folder/
  recoveries-MODE-LEVEL.jsonl   first states whose second states all held, with these; a later call leaves them out

Does not verify a third crash, nor a power loss after the first crash was only a kill: what was not synced then
counts as written here.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from recollect.regular_files import read_file
from recollect.verify.disk.explanation import ACK
from recollect.verify.disk.exploring import (
    Check,
    ExplorePlan,
    Judgement,
    Key,
    judge,
    load_judgements,
    marks_of,
    save_judgements,
)
from recollect.verify.disk.image import Base, laid_out
from recollect.verify.disk.model import Model
from recollect.verify.disk.recorder import Recorder
from recollect.verify.disk.records import DamagedRecording, Op, Record
from recollect.verify.disk.recovery import recovery
from recollect.verify.disk.selfcheck import check_sight
from recollect.verify.disk.states import State, find
from recollect.verify.engines import Endpoint, EngineError
from recollect.verify.explore.exploration import NothingRecorded, TargetRun
from recollect.verify.explore.resuming import JUDGEMENTS, REFUSED, BadStates, Explored, Tally
from recollect.verify.target import pipe
from recollect.verify.target.registry import imports_of
from recollect.verify.target.workers import TargetBroken, WorkerDied, Workers

READ_TIMEOUT_S = 60.0
LOG_BYTES = 256 << 20
"""What one recovery may write, and what the recoveries of one round may hold together."""
RECORDING_SHARE = 0.25
"""Of the time that is left; the rest of a round judges what was found."""
STATES_MAX = 20_000
"""Second states of one round."""


@dataclass(frozen=True, slots=True)
class RecordedRecovery:
    """What the recovery from one first crash state did to the disk."""

    first: State
    base: Base
    records: tuple[Record, ...]
    """The marks before the first crash, then the recovery's calls."""

    @property
    def calls(self) -> int:
        return len(self.records) - self.first.marks

    def told(self, state: State) -> tuple[tuple[Record, ...], State]:
        """Its records and one of its states, with a note where the first crash was."""
        note = Record(Op.MARK, f"first crash, {self.first}; then the engine starts and the store is opened")
        marks = self.first.marks
        return (*self.records[:marks], note, *self.records[marks:]), replace(state, point=state.point + 1)


@dataclass(frozen=True, slots=True)
class Recoveries:
    """How far an exploration of second crashes came, beside its tally."""

    firsts: int
    """First crash states to recover from."""
    recorded: int
    quiet: int
    """Recoveries that wrote nothing: a crash during one of them leaves the first state."""
    is_cut: bool
    """The budget ended before all first states were found."""
    worst: RecordedRecovery | None
    """The recovery that was under way at the worst second crash."""


class RecoveryRecorder:
    """Recovers from one first crash state after another, under the recorder."""

    def __init__(self, run: TargetRun, log: Path, home: Path) -> None:
        about = run.about
        self._target = about.target
        self._sessions = sorted({turn.session for turn in about.turns})
        self._marks = [record for record in run.records if record.op is Op.MARK]
        self._recovery = recovery(about.engine, about.policy, home)
        self._workers = Workers(log, imports_of(about.target, about.engine))
        self._recorder: Recorder | None = None

    def record(self, first: State) -> RecordedRecovery:
        """Raises NothingRecorded when something changed the files unseen."""
        self._recovery.lay_out(first.image)
        base = laid_out(self._recovery.folder, first.image)
        recorder = self._recorder
        if recorder is None:
            recorder = Recorder(self._recovery.folder, base=base, capacity_bytes=LOG_BYTES, skip_sync=True)
            self._recorder = recorder
        recorder.begin_again(base)
        try:
            endpoint = self._recovery.start(recorder.env())
            self._workers.recorded = recorder.env() if self._recovery.embedded else None
            self._open_and_read(endpoint)
        except EngineError:
            pass  # it held when it was judged; whatever this start wrote counts anyway
        finally:
            self._recovery.stop()
        calls = tuple(recorder.read())
        blindness = check_sight(recorder, Model(base).replay(calls)) if recorder.pids() else None
        if blindness is not None:
            raise NothingRecorded(str(blindness))
        return RecordedRecovery(first, base, (*self._marks[: first.marks], *calls))

    def _open_and_read(self, endpoint: Endpoint) -> None:
        """What the store makes of it is judged elsewhere: here only what is written counts."""
        with contextlib.suppress(TargetBroken, WorkerDied):
            worker, _ = self._workers.start(self._target, endpoint)
            try:
                for session in self._sessions:
                    worker.send(pipe.Read(session))
                    if not worker.readable(READ_TIMEOUT_S):
                        break
                    worker.receive()
            finally:
                self._workers.kill(worker)

    def close(self) -> None:
        self._workers.close_all()
        self._recovery.close()
        if self._recorder is not None:
            self._recorder.close()


def explore_recoveries(
    run: TargetRun,
    folder: Path,
    plan: ExplorePlan,
    make_check: Callable[[], Check],
    home: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Explored, Recoveries]:
    """Judge crashes during the recoveries from the first states that `explore_run` has judged, until all are judged or
    the budget ends; call it again to go on. Raises NothingRecorded."""
    search = _RecoverySearch(run, folder, plan)
    recording = RecoveryRecorder(run, folder / "target.log", home)
    try:
        while (todo := search.todo()) and not search.is_over:
            found = search.round(recording, todo)
            search.judge(found, make_check, progress)
    finally:
        recording.close()
        search.save()
    return search.result()


@dataclass(frozen=True, slots=True)
class _SettledFirst:
    """A first state that needs no further look, as a line of the file."""

    first: str
    calls: int
    states: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class _RecordedRound:
    """Recoveries that were recorded together, and their second states."""

    recoveries: list[RecordedRecovery] = field(default_factory=list)
    states: dict[Key, tuple[State, RecordedRecovery]] = field(default_factory=dict)
    of: dict[Key, list[Key]] = field(default_factory=dict)
    """The second states of each first one."""


class _RecoverySearch:
    """The state of one exploration of second crashes."""

    def __init__(self, run: TargetRun, folder: Path, plan: ExplorePlan) -> None:
        self._run, self._folder, self._plan = run, folder, plan
        self._began = time.monotonic()
        self._file = folder / f"recoveries-{plan.mode}-{plan.level}.jsonl"
        self._done = _load(self._file)
        self._known = load_judgements(folder / JUDGEMENTS)
        self._before = len(self._known)
        deadline = None if plan.budget_s is None else self._began + plan.budget_s * RECORDING_SHARE
        found = find(
            run.base,
            run.records,
            plan.mode,
            plan.level,
            exclude=plan.exclude,
            start=plan.start,
            until=lambda count: deadline is not None and time.monotonic() > deadline,
        )
        self._is_cut = found.reached is not None
        self._first_keys = {state.key for state in found.states}
        self._marks = marks_of(run.records)
        self._firsts = [
            state
            for state in found.states
            if _is_sound(self._known.get(state.key)) and self._has_acknowledged(state)
        ]
        # A budget that ends early has then looked at recoveries from all over the run.
        random.Random(len(self._firsts)).shuffle(self._firsts)
        self._recorded: dict[Key, RecordedRecovery] = {}
        self._seen: dict[Key, RecordedRecovery | None] = {
            (int(digest, 16), marks): None for done in self._done.values() for digest, marks in done.states
        }
        self._cut: set[Key] = set()
        """First states whose recovery was not searched to its end."""
        self._bad = BadStates()

    def _has_acknowledged(self, state: State) -> bool:
        return any(mark.startswith(ACK) for mark in self._marks[: state.marks])

    @property
    def left_s(self) -> float | None:
        budget_s = self._plan.budget_s
        return None if budget_s is None else max(0.0, budget_s - (time.monotonic() - self._began))

    @property
    def is_over(self) -> bool:
        return self.left_s == 0.0

    def todo(self) -> list[State]:
        return [
            first
            for first in self._firsts
            if first.key not in self._recorded and _name(first.key) not in self._done
        ]

    def round(self, recording: RecoveryRecorder, todo: Sequence[State]) -> _RecordedRound:
        """Record recoveries for a part of the time that is left, at least one."""
        found, held_bytes = _RecordedRound(), 0
        until = None if self.left_s is None else time.monotonic() + self.left_s * RECORDING_SHARE
        for first in todo:
            recorded = recording.record(first)
            self._recorded[first.key] = recorded
            found.recoveries.append(recorded)
            found.of[first.key] = self._second(recorded, found.states)
            held_bytes += sum(len(record.data) for record in recorded.records)
            late = until is not None and time.monotonic() > until
            if late or held_bytes > LOG_BYTES or len(found.states) > STATES_MAX:
                break
        return found

    def _second(
        self, recorded: RecordedRecovery, into: dict[Key, tuple[State, RecordedRecovery]]
    ) -> list[Key]:
        """The states of a crash during this recovery that are new."""
        plan, first = self._plan, recorded.first
        if recorded.calls == 0:
            return []
        until = None if self.left_s is None else time.monotonic() + self.left_s * RECORDING_SHARE
        found = find(
            recorded.base,
            recorded.records,
            plan.mode,
            plan.level,
            exclude=plan.exclude,
            start=first.marks,
            until=lambda count: count > STATES_MAX or (until is not None and time.monotonic() > until),
        )
        if found.reached is not None:
            self._cut.add(first.key)
        own = [state for state in found.states if state.key not in self._first_keys]
        for state in own:
            if state.key not in self._seen:
                into.setdefault(state.key, (state, recorded))
        return [state.key for state in own]

    def judge(
        self, found: _RecordedRound, make_check: Callable[[], Check], progress: Callable[[int, int], None]
    ) -> None:
        states = [state for state, _ in found.states.values()]
        random.Random(len(states)).shuffle(states)
        plan = replace(self._plan, budget_s=self.left_s)
        judge(states, self._marks, make_check, plan, known=self._known, progress=progress)
        for key, (state, recorded) in found.states.items():
            self._seen[key] = recorded
            judgement = self._known.get(key)
            if judgement is not None and judgement.anomaly is not None:
                self._bad.add(state, judgement)
        for recorded in found.recoveries:
            first, keys = recorded.first.key, found.of[recorded.first.key]
            # One that shows something is recorded again in a later call, which can then show it, too.
            quiet = all(key in self._known and self._known[key].anomaly is None for key in keys)
            if quiet and first not in self._cut:
                name = _name(first)
                self._done[name] = _SettledFirst(
                    name, recorded.calls, tuple((f"{d:032x}", m) for d, m in keys)
                )

    def save(self) -> None:
        save_judgements(self._folder / JUDGEMENTS, self._known)
        self._file.write_bytes(b"".join(msgspec.json.encode(done) + b"\n" for done in self._done.values()))

    def result(self) -> tuple[Explored, Recoveries]:
        judged = [self._known[key] for key in self._seen if key in self._known]
        anomalies: dict[str, int] = {}
        for judgement in judged:
            if judgement.anomaly is not None:
                anomalies[judgement.anomaly] = anomalies.get(judgement.anomaly, 0) + 1
        disagreements = self._bad.judge_again(self._folder)
        worst = self._bad.worst
        recorded = len(self._firsts) - len(self.todo()) - len(self._cut)
        explored = Explored(
            self._plan,
            self._bad.corrected(Tally.counted(len(self._seen), judged), disagreements),
            len(self._known) - self._before,
            time.monotonic() - self._began,
            anomalies,
            worst,
            recorded,
            len(self._firsts),
            disagreements,
        )
        calls = {name: done.calls for name, done in self._done.items()}
        calls |= {_name(key): one.calls for key, one in self._recorded.items()}
        quiet = sum(count == 0 for count in calls.values())
        under_way = None if worst is None else self._seen[worst[0].key]
        return explored, Recoveries(len(self._firsts), recorded, quiet, self._is_cut, under_way)


def _is_sound(judgement: Judgement | None) -> bool:
    if judgement is None or judgement.anomaly == REFUSED:
        return False
    return judgement.anomaly is None or judgement.documented


def _name(key: Key) -> str:
    return f"{key[0]:032x}-{key[1]}"


def _load(file: Path) -> dict[str, _SettledFirst]:
    if not file.exists():
        return {}
    try:
        rows: Iterable[_SettledFirst] = [
            msgspec.json.decode(line, type=_SettledFirst) for line in read_file(file).splitlines()
        ]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRecording(f"{file} is damaged: {error}") from error
    return {row.first: row for row in rows}
