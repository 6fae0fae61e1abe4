"""The history of one schedule: a dozen events, in the format of every other history.

Each client is a process of the history, earlier messages come from another process, and the reads at the end from yet
another. Time is the number of the event: nothing here depends on how long anything took.

`operation` is one operation of a program: what it asks the store, and what it makes of the answers, whether a task, a
thread or a process carries the requests.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Generator, Iterator
from itertools import count
from typing import NamedTuple

from recollect.verify.explore.interleavings.dialogues import NUMBERS_PER_SCHEDULE
from recollect.verify.explore.interleavings.program import ProgramOp, spans
from recollect.verify.judging.history import HistoryWriter
from recollect.verify.judging.op import (
    ANSWERS,
    Acknowledged,
    BadEnd,
    Element,
    HistoryHeader,
    Operation,
    ReadAsked,
    WriteAsked,
)
from recollect.verify.judging.read_deltas import to_runs
from recollect.verify.target import pipe
from recollect.verify.target.marked_text import Recognised, mark

BEFORE = 98
"""The process number under which earlier messages were appended."""
AFTERWARDS = 99

Note = Callable[[str, str], None]
"""Tells the log what happened: its kind, and a few words."""


class _LatestRead(NamedTuple):
    """What a client's latest read of a session returned."""

    event: int
    sequence: int | None
    position: int | None
    numbers: tuple[int, ...]


class ScheduleHistory:
    """Records one schedule."""

    def __init__(self, header: HistoryHeader, base: int, expected: frozenset[str] = ANSWERS) -> None:
        """`base` is added to the numbers inside the messages, so that no other schedule has the same ones. `expected`
        are the names of errors that are answers."""
        ticks = count()
        self.file = io.BytesIO()
        self.writer = HistoryWriter(self.file, header, clock=lambda: next(ticks) * 1e-3, wall=lambda: 0.0)
        self._base = base
        self._expected = expected
        self._checksums: list[int] = []
        self._shared: WriteAsked | None = None
        self._seen: dict[tuple[int, int], _LatestRead] = {}
        self._excused: set[int] = set()
        self.blamed = False
        """An operation raised or never ended, and nothing excuses it."""
        self.disturbed = False
        """An operation ended in a way that may have damaged the store, so the store is not used again."""
        self.gave_up = False
        """A caller has given up, which may have damaged it too."""

    # ---- beginning

    def begin_write(self, client: int, op: ProgramOp, *, expect: int | None = None) -> pipe.Request:
        """Numbers the messages and returns the request."""
        called: Operation = "save" if op.letter == "s" else "replace" if op.letter == "p" else "append"
        again = self._shared if op.letter == "i" else None
        write = again or self._new_write(client, op, expect)
        if op.letter == "i":
            self._shared = write
        session = _session(op)
        self.writer.invoke_write(client, session, called, write)
        said = [
            pipe.Said(self._base + number, mark(self._base + number, _body(number)))
            for number in range(write.first, write.first + len(write.checksums))
        ]
        if called == "save":
            return pipe.Save(session, said)
        turn = f"turn-{self._base + write.first}"  # turn ids, like messages, belong to one schedule
        if called == "replace":
            return pipe.Replace(session, said, turn, expect)
        return pipe.AppendMessages(session, said, turn, expect)

    def _new_write(self, client: int, op: ProgramOp, expect: int | None) -> WriteAsked:
        size = 2 if op.letter == "t" else 1
        first = self.writer.messages
        assert first + size <= NUMBERS_PER_SCHEDULE
        self._checksums += [zlib.crc32(_body(number).encode()) for number in range(first, first + size)]
        checksums = tuple(self._checksums[first:])
        if op.letter in "sp":
            seen = self._seen[client, op.session]
            dropped = to_runs(seen.numbers) if op.letter == "p" else ()
            return WriteAsked(first, checksums, base=seen.event, dropped=dropped, expect=expect)
        return WriteAsked(first, checksums, turn=f"turn-{first}", expect=expect)

    def begin_read(self, client: int, op: ProgramOp) -> pipe.Request:
        self.writer.invoke_read(client, _session(op))
        return pipe.Read(_session(op), positioned=op.letter == "p")

    def begin_other(self, client: int, op: ProgramOp) -> pipe.Request:
        if op.letter == "f":
            self.writer.invoke(client, _session(op), "forget")
            return pipe.Forget(_session(op))
        self.writer.invoke(client, _session(op), "context")
        return pipe.ReadContext(_session(op))

    # ---- ending

    def end(self, client: int, op: ProgramOp, reply: pipe.Reply) -> str:
        """Records what came back; says it in a few words."""
        if not isinstance(reply, pipe.Failed):
            self._excused.discard(client)
        match reply:
            case pipe.Elements():
                return self._end_read(client, op, reply)
            case pipe.Parts(parts):
                read = [(ReadAsked(), self._elements(part)) for part in parts]
                self.writer.ok_context(client, read)
                return " and ".join(_told(elements) for _, elements in read)
            case pipe.Acked(sequence, durability, replicas) if op.letter != "f":
                self.writer.ok(client, Acknowledged(sequence, durability, replicas))
            case pipe.Failed(outcome, error, kinds):
                return self._end_badly(client, outcome, error, frozenset(kinds))
            case _:
                self.writer.ok(client)
        return "ok"

    def _end_badly(self, client: int, outcome: str, error: str, kinds: frozenset[str]) -> str:
        blame = not kinds & self._expected and client < BEFORE and client not in self._excused
        self._excused.discard(client)
        self.blamed = self.blamed or blame
        self.disturbed = self.disturbed or not kinds & self._expected
        ended = self.writer.fail if outcome == "fail" else self.writer.unknown
        ended(client, error, BadEnd("raised") if blame else None)
        return f"raised {error}"

    def excuse(self, client: int) -> None:
        """Its operation is about to fail because it waited for something that we held back."""
        self._excused.add(client)

    def gives_up(self, client: int) -> None:
        """Its caller cancels: an error of the operation, perhaps from its own clean-up, then accuses nobody."""
        self.gave_up = True
        self.excuse(client)

    def cancelled(self, client: int) -> str:
        """The caller gave up: it may have happened or not."""
        self._excused.discard(client)
        self.writer.unknown(client, "cancelled")
        return "cancelled"

    def hangs(self, client: int) -> None:
        self.blamed = self.disturbed = True
        self.writer.unknown(client, "it never ended", BadEnd("hang"))

    def expected(self, client: int, op: ProgramOp) -> int | None:
        """What a compare-and-set expects: the store's own sequence of the last message that the client saw, or the
        position that it asked for before."""
        seen = self._seen.get((client, op.session))
        if op.letter == "p":
            return seen.position if seen is not None else None
        return ((seen.sequence if seen is not None else None) or 0) if op.letter == "c" else None

    def _end_read(self, client: int, op: ProgramOp, reply: pipe.Elements) -> str:
        elements = self._elements(reply)
        event = self.writer.ok_read(client, elements)
        numbers = tuple(element.message for element in elements if element.message is not None)
        self._seen[client, op.session] = _LatestRead(event, reply.sequence, reply.position, numbers)
        return _told(elements)

    def _elements(self, reply: pipe.Elements) -> list[Element]:
        odd = iter(reply.odd)
        return [self._element(number, odd) for number in reply.numbers]

    def _element(self, number: int, odd: Iterator[Recognised]) -> Element:
        known = range(self._base, self._base + len(self._checksums))
        if number in known:
            return Element(number - self._base, self._checksums[number - self._base])
        if number >= 0:
            return Element(None, text=f"#{number}")
        item = next(odd)
        if item.number is not None and item.number in known:
            place = item.number - self._base
            return Element(place, self._checksums[place] ^ 1, text=item.excerpt)
        return Element(None, damaged=item.damaged, text=item.excerpt)


def _session(op: ProgramOp) -> str:
    return f"session-{op.session}"


def _body(number: int) -> str:
    return f"message {number}"


def _told(elements: list[Element]) -> str:
    numbers = [element.message for element in elements if element.message is not None]
    odd = " ?" * (len(elements) - len(numbers))
    return f"[{spans(numbers)}{odd}]"


def operation(
    history: ScheduleHistory, client: int, op: ProgramOp, note: Note
) -> Generator[pipe.Request, pipe.Reply, None]:
    """One operation: yields what to ask of the store, is sent the replies, and records both."""
    if op.letter in "rscp":
        note("begin", "read")
        reply = yield history.begin_read(client, op)
        note("end", history.end(client, op, reply))
        if op.letter == "r" or not isinstance(reply, pipe.Elements):
            return
    if op.letter in "fx":
        note("begin", "forget" if op.letter == "f" else "read the context")
        reply = yield history.begin_other(client, op)
    else:
        request = history.begin_write(client, op, expect=history.expected(client, op))
        assert isinstance(request, pipe.AppendMessages | pipe.Save | pipe.Replace)
        numbers = spans(said.number % NUMBERS_PER_SCHEDULE for said in request.said)
        called = {"s": "save", "p": "replace all with"}.get(op.letter, "append")
        note("begin", f"{called} {numbers}")
        reply = yield request
    note("end", history.end(client, op, reply))
