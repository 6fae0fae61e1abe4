"""Trying every crash state of one recorded run on the real engine.

States are found once, in this process; workers are then forked, so each has all of them in memory without a copy,
and takes every nth. The caller supplies what judges a state: a check, made once per worker, that recovers an engine on
the image, reads the store, and compares it with the marks (acknowledgements) before that point.

Judgements are kept by the disk's digest and the number of marks before it, so an exploration that was cut off (budget,
Ctrl-C) goes on where it was. If a higher level finds the same disk later in the run, it judges it again.

The budget includes the search for states. The search gets half of it and finds STATES_MAX states at most; what it did
not reach is a part of its own, which begins at `Exploration.reached`.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from recollect.regular_files import read_file
from recollect.verify.disk.image import Base, Image
from recollect.verify.disk.model import Mode
from recollect.verify.disk.records import DamagedRecording, Op, Record
from recollect.verify.disk.states import State, find

STATES_MAX = 50_000
"""For one part: each takes a few hundred bytes in every worker."""
_LENGTH_BYTES = 4
_BATCH_S = 0.1


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one crash state showed. `anomaly` is a name from the table of anomalies, None if the store held."""

    anomaly: str | None = None
    detail: str = ""
    documented: bool = False
    """The engine's own promise allows it."""


HELD = Judgement()
Key = tuple[int, int]
"""What a judgement is kept by: `State.key`."""


class Check(Protocol):
    """Judges crash states, one at a time; made in the worker that uses it."""

    def check(self, image: Image, marks: Sequence[str]) -> Judgement: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ExplorePlan:
    """What to explore, and how far."""

    mode: Mode = "ext4"
    level: int = 2
    workers: int = 2
    budget_s: float | None = None
    start: int = 0
    """How many records come before the first crash: the engine's own set-up."""
    exclude: Callable[[str], bool] | None = None
    states_max: int = STATES_MAX
    limit_bytes: int = 1 << 30
    """No file that a worker or its engine writes may grow beyond this."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """Every distinct state, and the judgements so far."""

    plan: ExplorePlan
    states: tuple[State, ...]
    judgements: dict[Key, Judgement] = field(default_factory=dict)
    elapsed_s: float = 0.0
    reached: int | None = None
    """The record before which the search for states stopped early; None when it reached the end of the run."""

    @property
    def counts(self) -> Counter[str]:
        """How many states held, and how many showed which anomaly."""
        return Counter(judgement.anomaly or "held" for judgement in self.judgements.values())

    @property
    def left(self) -> int:
        """States that the budget did not reach."""
        return len(self.states) - len(self.judgements)

    def bad(self) -> Iterator[tuple[State, Judgement]]:
        """States that did not hold, in the order of the run, including documented losses."""
        for state in self.states:
            judgement = self.judgements.get(state.key)
            if judgement is not None and judgement.anomaly is not None:
                yield state, judgement


class WorkerFailed(Exception):
    """A check raised: that is a bug in the check, and nothing may be concluded from its state."""


def explore(
    base: Base,
    records: Sequence[Record],
    make_check: Callable[[], Check],
    plan: ExplorePlan,
    *,
    known: dict[Key, Judgement] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Exploration:
    """Find all states and judge them. `known` judgements are not tried again, and new ones are added to it as they
    come, so that a caller who is interrupted still has them; `progress` gets (done, total)."""
    began = time.monotonic()
    deadline = None if plan.budget_s is None else began + plan.budget_s
    search_until = None if plan.budget_s is None else began + plan.budget_s / 2
    found = find(
        base,
        records,
        plan.mode,
        plan.level,
        exclude=plan.exclude,
        start=plan.start,
        until=lambda count: count >= plan.states_max or _is_over(search_until),
    )
    judgements = judge(
        found.states,
        marks_of(records),
        make_check,
        replace(plan, budget_s=None if deadline is None else deadline - time.monotonic()),
        known={} if known is None else known,
        progress=progress,
    )
    return Exploration(plan, tuple(found.states), judgements, time.monotonic() - began, found.reached)


def marks_of(records: Iterable[Record]) -> list[str]:
    return [record.path1 for record in records if record.op is Op.MARK]


def judge(
    states: Sequence[State],
    marks: Sequence[str],
    make_check: Callable[[], Check],
    plan: ExplorePlan,
    *,
    known: dict[Key, Judgement],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Key, Judgement]:
    """Judge these states of a run with these marks, in several processes, until the plan's budget ends."""
    deadline = None if plan.budget_s is None else time.monotonic() + plan.budget_s
    judgements = {state.key: known[state.key] for state in states if state.key in known}
    todo = [state for state in states if state.key not in judgements]
    progress(len(judgements), len(states))
    workers = [
        _StateWorker(todo[number :: plan.workers], marks, make_check, plan.limit_bytes, deadline)
        for number in range(min(plan.workers, len(todo)))
    ]
    try:
        for key, judgement in _gather(workers):
            judgements[key] = known[key] = judgement
            progress(len(judgements), len(states))
    finally:
        for worker in workers:
            worker.end()
    return judgements


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline


def _gather(workers: Sequence[_StateWorker]) -> Iterator[tuple[Key, Judgement]]:
    running = {worker.results.fileno(): worker for worker in workers}
    while running:
        ready, _, _ = select.select(list(running), [], [])
        for fd in ready:
            batch = running[fd].receive()
            if batch is None:
                del running[fd]
            else:
                yield from batch


class _StateWorker:
    """A forked process that works through its share of the states."""

    def __init__(
        self,
        share: Sequence[State],
        marks: Sequence[str],
        make_check: Callable[[], Check],
        limit_bytes: int,
        deadline: float | None,
    ) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            _work_and_exit(share, marks, make_check, limit_bytes, deadline, writing)
        os.close(writing)
        self.results: BinaryIO = os.fdopen(reading, "rb", buffering=0)

    def receive(self) -> list[tuple[Key, Judgement]] | None:
        """One batch; None when the worker has ended cleanly."""
        head = self._exactly(_LENGTH_BYTES)
        if head is None:
            raise WorkerFailed("a worker of the exploration ended without saying why; see its standard error")
        message = self._exactly(int.from_bytes(head, "big"))
        if message is None:
            raise WorkerFailed("a worker of the exploration was killed")
        batch = pickle.loads(message)
        if isinstance(batch, str):
            raise WorkerFailed(batch)
        return batch or None

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            piece = self.results.read(size - len(data))
            if not piece:
                return None
            data += piece
        return data

    def end(self) -> None:
        self.results.close()
        if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            os.kill(self.pid, signal.SIGTERM)
            os.waitpid(self.pid, 0)


def _work_and_exit(
    share: Sequence[State],
    marks: Sequence[str],
    make_check: Callable[[], Check],
    limit_bytes: int,
    deadline: float | None,
    writing: int,
) -> None:
    """In the child. It never returns into the parent's stack, whatever happens."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, lambda number, frame: (_ for _ in ()).throw(SystemExit(0)))
        # A torn file may make an engine write without end: it gets EFBIG before it fills the machine's memory.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with os.fdopen(writing, "wb") as pipe:
            try:
                for batch in _batches(share, marks, make_check, deadline):
                    _send(pipe, batch)
                _send(pipe, [])
                status = 0
            except Exception as error:
                _send(pipe, f"checking a crash state failed: {type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _batches(
    share: Sequence[State], marks: Sequence[str], make_check: Callable[[], Check], deadline: float | None
) -> Iterator[list[tuple[Key, Judgement]]]:
    check = make_check()
    batch: list[tuple[Key, Judgement]] = []
    sent = time.monotonic()
    try:
        for state in share:
            if _is_over(deadline):
                break
            now = time.monotonic()
            batch.append((state.key, check.check(state.image, marks[: state.marks])))
            if now - sent > _BATCH_S:
                yield batch
                batch, sent = [], now
        if batch:
            yield batch
    finally:
        check.close()


def _send(pipe: BinaryIO, message: object) -> None:
    data = pickle.dumps(message)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    pipe.flush()


# ---- judgements on disk, so that an exploration can go on ----


def save_judgements(path: Path, judgements: dict[Key, Judgement]) -> None:
    lines = (
        json.dumps({"digest": f"{digest:032x}", "marks": marks, **asdict(judgement)})
        for (digest, marks), judgement in judgements.items()
    )
    draft = path.with_suffix(".draft")
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.replace(path)


def load_judgements(path: Path) -> dict[Key, Judgement]:
    """Raises `DamagedRecording` if it is not the file that `save_judgements` wrote."""
    if not path.exists():
        return {}
    try:
        rows = [msgspec.json.decode(line, type=_JudgementLine) for line in read_file(path).splitlines()]
        return {
            (int(row.digest, 16), row.marks): Judgement(row.anomaly, row.detail, row.documented)
            for row in rows
        }
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedRecording(f"{path} is damaged: {error}") from error


class _JudgementLine(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the file."""

    digest: str
    marks: int
    anomaly: str | None = None
    detail: str = ""
    documented: bool = False
