"""`recollect explore`: one recorded run of a target, and what is left of it in every crash state.

One writer appends turns, one after the other, while every call that the engine (or the store itself, when the engine
is embedded) makes on its files is recorded, with each request and acknowledgement in between. Then each distinct
state of the disk is laid out, the engine recovers on it, the store is opened by its own factory and read, and what it
returns is judged against what had been acknowledged by then.

A read that returns exactly what was acknowledged (and perhaps the turn that was under way) holds. Anything else becomes
a history of its own, and the checkers judge it like any other.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from recollect import __version__, private
from recollect.regular_files import read_file
from recollect.verify.disk import recording
from recollect.verify.disk.explanation import ACK, ASK
from recollect.verify.disk.exploring import HELD, Judgement
from recollect.verify.disk.image import Base, Image
from recollect.verify.disk.model import Model
from recollect.verify.disk.recorder import Recorder
from recollect.verify.disk.records import DamagedRecording, Record
from recollect.verify.disk.recovery import recovery
from recollect.verify.disk.selfcheck import check_sight
from recollect.verify.engines import Endpoint, Engine, EngineError, create
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.explore.crash_state_reader import Reader, Reading
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import FaultDetail, HistoryHeader
from recollect.verify.running.real_policy import real_policy
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.workloads import AppendTurn, Body, ReadBack
from recollect.verify.target import form_trial, pipe, worker
from recollect.verify.target.marked_text import mark
from recollect.verify.target.registry import imports_of
from recollect.verify.target.workers import Worker, Workers

SESSIONS = ("session-0", "session-1")
_FAULT = "power-loss"
_Answer = TypeVar("_Answer", pipe.Acked, pipe.Elements)


class NothingRecorded(Exception):
    """The run cannot be explored; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages that one append wrote together: `first`, `first + 1`, …"""

    session: str
    first: int
    texts: tuple[str, ...]

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.texts))


@dataclass(frozen=True, slots=True)
class About:
    """What ran, and what it was asked to do."""

    target: str
    engine: str
    engine_version: str
    policy: str
    turns: tuple[Turn, ...]
    start: int
    """How many records the engine's start and the store's opening made, before the first request."""
    claims: tuple[str | None, ...] = ()
    """What each turn survives according to its acknowledgement, if that said so."""
    real_policy: str = ""
    """The policy that the store's own connections have."""
    keeps_last: int | None = None
    """How many messages of a session the store says it keeps."""


@dataclass(frozen=True, slots=True)
class TargetRun:
    """One recorded run of a target."""

    about: About
    base: Base
    records: tuple[Record, ...]


def turns_of(messages: int, batches: bool) -> tuple[Turn, ...]:
    """Turns of one and two messages in two sessions."""
    turns: list[Turn] = []
    number = 0
    while number < messages:
        size = min(2 if batches and len(turns) % 2 else 1, messages - number)
        texts = tuple(f"message {number + i} {'.' * 60}" for i in range(size))
        turns.append(Turn(SESSIONS[len(turns) % len(SESSIONS)], number, texts))
        number += size
    return tuple(turns)


def record(target: str, engine_spec: str, policy: str, *, messages: int, folder: Path) -> TargetRun:
    """Run the target once, and keep the recording in `folder` for later. Raises NothingRecorded when the recorder was
    blind or an append failed."""
    with ExitStack() as stack:
        engine = create(engine_spec, policy)
        stack.callback(engine.close)
        if isinstance(engine, PostgresEngine):
            engine.prepare()
        assert engine.data is not None
        engine.data.mkdir(parents=True, exist_ok=True)
        workers = Workers(folder / "target.log", imports_of(target, engine_spec))
        stack.callback(workers.close_all)
        ready = _prepare(engine, workers, target)
        recorder = stack.enter_context(Recorder(engine.data, skip_sync=True))
        endpoint = engine.start(recorder.env())
        if engine.embedded:
            workers.recorded = recorder.env()
        writer, _ = workers.start(target, endpoint)
        turns = turns_of(messages, "batches" in ready.abilities)
        start = sum(1 for _ in recorder.read())
        claims = _append_all(writer, recorder, turns, whole_list="whole-list" in ready.abilities)
        workers.kill(writer)
        engine.kill()
        records = tuple(recorder.read())
        blindness = check_sight(recorder, Model(recorder.base).replay(records))
        if blindness is not None:
            raise NothingRecorded(str(blindness))
        recording.save(recorder, folder / "recording")
        real = real_policy(engine.name, policy, ready.settings)
        about = About(
            target, engine_spec, engine.version, policy, turns, start, claims, real, ready.keeps_last
        )
        (folder / "about.json").write_bytes(msgspec.json.encode(about))
        return TargetRun(about, recorder.base, records)


def is_recorded(folder: Path) -> bool:
    return (folder / "about.json").is_file()


def load(folder: Path) -> TargetRun:
    """A run that was recorded before. Raises `DamagedRecording` if its files are not as they were written."""
    try:
        about = msgspec.json.decode(read_file(folder / "about.json"), type=About)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRecording(f"{folder / 'about.json'} is damaged: {error}") from error
    kept = recording.Recording.load(folder / "recording")
    return TargetRun(about, kept.base, kept.records)


def _prepare(engine: Engine, workers: Workers, target: str) -> pipe.Ready:
    """Makes tables and migrations before the recording, which starts from a cleanly stopped engine."""
    endpoint = engine.start()
    writer, ready = workers.start(target, endpoint, prepare=True)
    workers.close(writer)
    ready = form_trial.settled(workers, target, endpoint, ready)
    ready.settings = workers.settings(target, endpoint, ready)
    engine.stop()
    return ready


def _append_all(
    writer: Worker, recorder: Recorder, turns: Sequence[Turn], *, whole_list: bool
) -> tuple[str | None, ...]:
    """A store that saves whole lists is read before each turn: what it is not given again, it replaces."""
    claims: list[str | None] = []
    for index, turn in enumerate(turns):
        said = [
            pipe.Said(number, mark(number, text))
            for number, text in zip(turn.numbers, turn.texts, strict=True)
        ]
        what = f"turn {index}, {_messages(turn.numbers)} of {turn.session}"
        write: pipe.Request = pipe.AppendMessages(turn.session, said, turn=f"turn-{index}")
        if whole_list:
            _answered(writer, pipe.Read(turn.session), pipe.Elements)
            write = pipe.Save(turn.session, said)
        recorder.mark(f"{ASK}{what}")
        reply = _answered(writer, write, pipe.Acked)
        recorder.mark(f"{ACK}{what}")
        claims.append(reply.durability)
    return tuple(claims)


def _answered(writer: Worker, request: pipe.Request, expected: type[_Answer]) -> _Answer:
    writer.send(request)
    reply = writer.receive()
    if not isinstance(reply, expected):
        said_what = reply.error if isinstance(reply, pipe.Failed) else repr(reply)
        what = "a read" if isinstance(request, pipe.Read) else "an append"
        raise NothingRecorded(f"{what} failed although nothing was broken: {said_what}")
    return reply


def _messages(numbers: Sequence[int]) -> str:
    if len(numbers) < 2:
        return f"message {numbers[0]}" if numbers else "no message"
    return f"messages {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


class TargetCheck:
    """Judges crash states of one run. Made in the worker that uses it; what the store prints goes to `log`, if any."""

    def __init__(self, run: TargetRun, log: Path | None, home: Path) -> None:
        if log is not None:
            worker.redirect_output(log)
        self._about = run.about
        self._recovery = recovery(run.about.engine, run.about.policy, home)
        self._reader = Reader(run.about.target)
        self._folder = Path(tempfile.mkdtemp(dir=home, prefix="judged-"))
        self._findings: dict[tuple[int, int, bytes], Judgement] = {}
        """Many disks read the same, so judgements are kept by what was read."""

    def check(self, image: Image, marks: Sequence[str]) -> Judgement:
        asked = sum(text.startswith(ASK) for text in marks)
        acked = sum(text.startswith(ACK) for text in marks)
        turns = self._about.turns[:asked]
        try:
            endpoint = self._recovery.recover(image)
        except EngineError as refusal:
            return self._judged(turns, acked, str(refusal))
        read = self._read(endpoint, sorted({turn.session for turn in turns}))
        if _is_exact(turns, acked, read):
            return HELD
        key = (asked, acked, msgspec.json.encode(read))
        if key not in self._findings:
            self._findings[key] = self._judged(turns, acked, read)
        return self._findings[key]

    def look(self, image: Image) -> Reading:
        """What the store reads on this disk, by session. Raises EngineError when the engine refuses it."""
        endpoint = self._recovery.recover(image)
        return self._read(endpoint, sorted({turn.session for turn in self._about.turns}))

    def _read(self, endpoint: Endpoint, sessions: Sequence[str]) -> Reading:
        return self._reader.read(endpoint, sessions)

    def _judged(self, turns: Sequence[Turn], acked: int, read: Reading | str) -> Judgement:
        path = self._folder / "history.jsonl"
        with _writing(path, self._about) as (history, transcript):
            _tell_appends(transcript, turns, self._about.claims[:acked])
            history.fault_injected(_FAULT, FaultDetail())
            history.engine_stopped()
            if isinstance(read, str):
                history.engine_refused(read)
            else:
                history.engine_started()
                history.fault_healed(_FAULT, FaultDetail())
                _tell_reads(transcript, read)
        verdict = analyze(History(path))
        if verdict.status == "held" or (verdict.status == "unknown" and acked == 0):
            return HELD
        documented = verdict.status == "documented-loss"
        if isinstance(read, str):
            return Judgement("refuses-to-start", _ends(read), documented)
        first = verdict.anomalies[0] if verdict.anomalies else None
        name = first.name if first is not None else verdict.status
        detail = _timeless(first.sentence) if first is not None else verdict.reason or ""
        return Judgement(name, detail, documented)

    def close(self) -> None:
        self._recovery.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _ends(said: str) -> str:
    """The first and last line of what an engine said (what happened, and why), without pids and times."""
    lines = [_STAMP.sub("", line.strip()) for line in said.splitlines() if line.strip()]
    return " … ".join(dict.fromkeys((lines[0], lines[-1])))


_STAMP = re.compile(r"^\d+:\S+ \d+ \w+ \d+ [\d:.]+ [-.*#] |^\d{4}-\d\d-\d\d [\d:.]+ \w+ \[\d+\] ")
_TIMES = (
    (re.compile(r" \(events? [\d, ]+\)"), ""),
    (re.compile(r" at [\d.]+ s\b"), ""),
    (re.compile(r" [\d.]+ s before power-loss"), " before the power loss"),
    (re.compile(r"\bthe read that ended at event \d+"), "the read after recovery"),
)


def _timeless(sentence: str) -> str:
    """A checker's sentence without times and event numbers: this history was only made to be judged."""
    for pattern, word in _TIMES:
        sentence = pattern.sub(word, sentence)
    return sentence


def _is_exact(turns: Sequence[Turn], acked: int, read: Reading) -> bool:
    for session, elements in read.items():
        if isinstance(elements, str) or elements.odd:
            return False
        certain = [number for turn in turns[:acked] if turn.session == session for number in turn.numbers]
        under_way = [number for turn in turns[acked:] if turn.session == session for number in turn.numbers]
        if elements.numbers not in (certain, certain + under_way):
            return False
    return True


@contextmanager
def _writing(path: Path, about: About) -> Iterator[tuple[HistoryWriter, Transcript]]:
    header = HistoryHeader(
        recollect=__version__,
        target=about.target,
        engine=about.engine.partition("@")[0],
        engine_version=about.engine_version,
        policy=about.policy,
        real_policy=about.real_policy,
        fault=_FAULT,
        workload="turns",
        keeps_last=about.keeps_last,
        ok_ops_min=0,
        ends=True,
    )
    with HistoryWriter(private.artifact(path), header) as history:
        yield history, Transcript(history, retries=False)
        history.run_ended()


def _tell_appends(transcript: Transcript, turns: Sequence[Turn], claims: Sequence[str | None]) -> None:
    """Writes the appends to the history; the first ones were acknowledged, with these claims."""
    for index, turn in enumerate(turns):
        intent = AppendTurn(turn.session, tuple(Body(text) for text in turn.texts))
        transcript.begin(0, intent)
        if index < len(claims):
            transcript.end(0, intent, pipe.Acked(durability=claims[index]))
        else:
            transcript.unknown(0, "the power failed before an answer came")


def _tell_reads(transcript: Transcript, read: Reading) -> None:
    for session, elements in read.items():
        if isinstance(elements, str):
            transcript.refused_read(1, session, elements)
            continue
        intent = ReadBack(session)
        transcript.begin(1, intent)
        transcript.end(1, intent, elements)
