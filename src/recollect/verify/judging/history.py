"""The history: an append-only record of what was asked and what came back, one JSON document per line.

The first line is the `HistoryHeader`, every further line one `Event` (see op.py). `HistoryWriter` is used by the
runner alone, which numbers the events and stamps their times; `History` streams a file back in blocks, so a
history never has to fit in memory.

A history whose last line was cut off (the machine died) is read up to its last whole line, and `truncated`
says so. One that was cut between two lines lacks the end that its header announces (`HistoryHeader.ends`). Anything
else that is not a history raises `HistoryError` with the line number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec

from recollect.regular_files import open_file
from recollect.verify.judging.op import (
    FORMAT,
    Acknowledged,
    BadEnd,
    Context,
    Element,
    Event,
    FaultDetail,
    Found,
    HistoryHeader,
    Kind,
    Operation,
    ReadAsked,
    RetractAsked,
    RowsCounted,
    Value,
    WriteAsked,
)
from recollect.verify.judging.read_deltas import ViewEncoder, to_runs

BLOCK_BYTES = 1 << 17  # a block's events stay in the processor's cache; a megabyte is a fifth slower
DRIFT_NOTICED_S = 0.001


class HistoryError(Exception):
    """The file is not a history; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class HistoryWriter:
    """Appends events to a file. Not thread-safe: the runner owns it.

    `clock` and `wall` are arguments so that a test can drive time. Events are buffered; faults and `close`
    flush them, and `flush` does so at any other moment.
    """

    def __init__(
        self,
        file: IO[bytes],
        header: HistoryHeader,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._clock, self._wall = clock, wall
        self._started_s = clock()
        self.header = msgspec.structs.replace(header, started_s=wall())
        self._encoder = msgspec.json.Encoder()
        self._views = ViewEncoder()
        self._open: dict[int, tuple[str, Operation, ReadAsked | None]] = {}
        self._events = 0
        self._messages = 0
        self.disturbed = -1
        """A fault may have taken anything acknowledged before this event; -1 until the first fault."""
        self._stopped = False
        file.write(self._encoder.encode(self.header) + b"\n")

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def messages(self) -> int:
        """How many messages are numbered so far: the `first` of the next new turn."""
        return self._messages

    def invoke_write(self, process: int, session: str, operation: Operation, write: WriteAsked) -> int:
        """An append, a save or a replace begins. A new turn starts at `messages`; a retry repeats its first number."""
        end = write.first + len(write.checksums)
        if write.first != self._messages and end > self._messages:
            raise ValueError(
                f"a turn starts at message {write.first}, the next free number is {self._messages}: "
                "use `HistoryWriter.messages` as `first` of a new turn"
            )
        self._messages = max(self._messages, end)
        self._views.appended(write.first, write.checksums)
        return self._invoke(process, session, operation, write)

    def invoke_retract(self, process: int, session: str, retraction: RetractAsked) -> int:
        return self._invoke(process, session, "retract", retraction)

    def invoke_read(self, process: int, session: str, ask: ReadAsked | None = None) -> int:
        return self._invoke(process, session, "read", ask)

    def invoke(self, process: int, session: str, operation: Operation) -> int:
        """A context read, forget, search or count begins."""
        return self._invoke(process, session, operation, None)

    def ok(self, process: int, value: Acknowledged | RowsCounted | None = None) -> int:
        """A write, retract, forget or count was acknowledged, and the runner has received the answer."""
        return self._complete("ok", process, value)

    def ok_read(self, process: int, elements: Sequence[Element]) -> int:
        session, _, ask = self._open[process]
        return self._complete("ok", process, self._views.read(session, ask, elements))

    def ok_context(self, process: int, parts: Sequence[tuple[ReadAsked, Sequence[Element]]]) -> int:
        session, _, _ = self._open[process]
        return self._complete("ok", process, Context(self._views.context(session, parts)))

    def ok_search(self, process: int, listed: Iterable[int], found: Iterable[int]) -> int:
        return self._complete("ok", process, Found(to_runs(listed), to_runs(found)))

    def fail(self, process: int, error: str, blame: BadEnd | None = None) -> int:
        """The operation certainly had no effect, or a read raised although the engine answered."""
        return self._complete("fail", process, blame, error)

    def unknown(self, process: int, error: str, blame: BadEnd | None = None) -> int:
        """No answer came, or one that leaves open whether the operation took effect."""
        return self._complete("unknown", process, blame, error)

    def fault_injected(self, fault: str, value: FaultDetail | None = None) -> int:
        return self._disturb("fault-injected", fault, value)

    def fault_healed(self, fault: str, value: FaultDetail | None = None) -> int:
        return self._disturb("fault-healed", fault, value)

    def engine_stopped(self, value: FaultDetail | None = None) -> int:
        return self._disturb("engine-stopped", "", value)

    def engine_started(self, value: FaultDetail | None = None) -> int:
        return self._disturb("engine-started", "", value)

    def engine_refused(self, error: str) -> int:
        """The engine did not come back on its own data within the deadline."""
        return self._disturb("engine-refused", "", None, error)

    def run_stopped(self, reason: str) -> int:
        """The run was stopped early, so its verdict cannot be `held`."""
        return self._disturb("run-stopped", "", None, reason)

    def run_ended(self) -> int:
        """Everything was done and recorded: nothing follows."""
        return self._write("run-ended", -1, "", "", None)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _invoke(
        self,
        process: int,
        session: str,
        operation: Operation,
        value: WriteAsked | RetractAsked | ReadAsked | None,
    ) -> int:
        if process in self._open:
            raise ValueError(
                f"process {process} still has {self._open[process][1]!r} open: complete it, as `unknown` if "
                "the client died, before it invokes again"
            )
        self._open[process] = (session, operation, value if isinstance(value, ReadAsked) else None)
        return self._write("invoke", process, session, operation, value)

    def _complete(self, kind: Kind, process: int, value: Value | None, error: str | None = None) -> int:
        if process not in self._open:
            raise ValueError(f"process {process} completes {kind!r} without an open invocation")
        session, operation, _ = self._open.pop(process)
        return self._write(kind, process, session, operation, value, error)

    def _disturb(self, kind: Kind, fault: str, value: FaultDetail | None, error: str | None = None) -> int:
        index = self._write(kind, -1, "", fault, value, error)
        self._file.flush()
        if kind == "fault-injected":
            self._stopped = False
        if kind == "engine-stopped":
            self._stopped = True
        # An engine loses data when it stops; without a stop, a fault may take data until it is healed.
        if kind != "engine-started" and not (kind == "fault-healed" and self._stopped):
            self.disturbed = index
        return index

    def _write(
        self,
        kind: Kind,
        process: int,
        session: str,
        operation: str,
        value: Value | None,
        error: str | None = None,
    ) -> int:
        index = self._events
        time_s = round(self._clock() - self._started_s, 6)
        drift_s = round(self._wall() - self.header.started_s - time_s, 3)
        event = Event(index, kind, time_s, process, session, operation, value, error)
        if abs(drift_s) > DRIFT_NOTICED_S:
            event.drift_s = drift_s
        self._file.write(self._encoder.encode(event) + b"\n")
        self._events += 1
        return index


class History:
    """A saved history: its header, and its events as often as they are iterated.

    `truncated` is known after the first complete iteration.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = False
        with open_file(path) as file:
            first = file.readline()
        self.header = _decode_header(first)

    def __iter__(self) -> Iterator[Event]:
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[list[Event]]:
        """The events in lists of a few thousand, for the fast path."""
        decoder = msgspec.json.Decoder(Event)
        line = 2  # of the first event in the block
        with open_file(self.path) as file:
            file.readline()
            rest = b""
            while chunk := file.read(BLOCK_BYTES):
                whole, newline, tail = (rest + chunk).rpartition(b"\n")
                rest = tail
                if newline:
                    events = _decode_block(decoder, whole, line)
                    line += len(events)
                    yield events
            self.truncated = bool(rest)


class RecordedHistory:
    """A history in memory, with the interface of `History`; generated histories are checked through it."""

    def __init__(self, header: HistoryHeader, events: Sequence[Event], *, truncated: bool = False) -> None:
        self.header = header
        self.events = events
        self.truncated = truncated

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def blocks(self) -> Iterator[list[Event]]:
        yield list(self.events)


AnyHistory = History | RecordedHistory


def _decode_header(line: bytes) -> HistoryHeader:
    if not line.endswith(b"\n"):
        raise HistoryError(1, "no whole first line; a history starts with its header")
    try:
        header = msgspec.json.decode(line, type=HistoryHeader)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryError(1, f"not a history's header: {error}") from error
    if header.history != FORMAT:
        raise HistoryError(1, f"format {header.history}, this release reads format {FORMAT}")
    return header


def _decode_block(decoder: msgspec.json.Decoder[Event], block: bytes, line: int) -> list[Event]:
    try:
        events = decoder.decode_lines(block)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        events = [
            _decode_line(decoder, text, line + offset) for offset, text in enumerate(block.split(b"\n"))
        ]
    if events and (events[0].index != line - 2 or events[-1].index != line - 3 + len(events)):
        _find_gap(events, line)
    return events


def _decode_line(decoder: msgspec.json.Decoder[Event], text: bytes, line: int) -> Event:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryError(line, f"not an event: {error}") from error


def _find_gap(events: list[Event], line: int) -> None:
    for offset, event in enumerate(events):
        if event.index != line + offset - 2:
            raise HistoryError(
                line + offset,
                f"event index {event.index}, expected {line + offset - 2}: events are missing or doubled",
            )
