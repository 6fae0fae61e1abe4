"""Small histories written by hand: a script says who did what in which order, and asks for the verdict."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import HistoryWriter, RecordedHistory
from recollect.verify.judging.op import (
    Acknowledged,
    Element,
    Event,
    FaultDetail,
    HistoryHeader,
    Operation,
    ReadAsked,
    RetractAsked,
    RowsCounted,
    WriteAsked,
)
from recollect.verify.judging.read_deltas import to_runs
from recollect.verify.judging.verdict import Anomaly, Verdict


def save_history(history: RecordedHistory, path: Path) -> None:
    """Saves a history as it is, numbers and times included."""
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        file.write(encoder.encode(history.header) + b"\n")
        file.write(encoder.encode_lines(history.events))


class Script:
    """Each step takes 10 ms. Messages are numbered from 0; the checksum of message n is n."""

    def __init__(self, **header: object) -> None:
        self.now_s = 0.0
        self.file = io.BytesIO()
        fields = {"recollect": "0.1.0", "engine": "redis", "policy": "aof-always", "ok_ops_min": 0} | header
        self.writer = HistoryWriter(
            self.file,
            msgspec.convert(fields, HistoryHeader),
            clock=lambda: self.now_s,
            wall=lambda: self.now_s,
        )

    def step(self) -> None:
        self.now_s = round(self.now_s + 0.01, 6)

    def wait(self, seconds: float) -> None:
        self.now_s = round(self.now_s + seconds, 6)

    # -- writes -------------------------------------------------------------------------------------------

    def begin(
        self,
        process: int,
        session: str = "s",
        count: int = 1,
        *,
        first: int | None = None,
        operation: Operation = "append",
        expect: int | None = None,
        retention_s: float | None = None,
        base: int | None = None,
        dropped: tuple[int, ...] = (),
        contents: tuple[str, ...] = (),
    ) -> int:
        """Invoke a write; `first` repeats an earlier turn. Returns its first message."""
        self.step()
        first = self.writer.messages if first is None else first
        checksums = tuple(range(first, first + count))
        write = WriteAsked(
            *(first, checksums, f"t{first}", expect, retention_s, base, dropped), contents=contents
        )
        self.writer.invoke_write(process, session, operation, write)
        return first

    def ok(self, process: int, claim: str | None = None) -> int:
        self.step()
        return self.writer.ok(process, None if claim is None else Acknowledged(durability=claim))

    def fail(self, process: int, error: str = "NotWritten") -> int:
        self.step()
        return self.writer.fail(process, error)

    def unknown(self, process: int, error: str = "timed out") -> int:
        self.step()
        return self.writer.unknown(process, error)

    def append(
        self,
        process: int,
        session: str = "s",
        count: int = 1,
        *,
        outcome: str = "ok",
        claim: str | None = None,
        **options: object,
    ) -> int:
        """A write from its invocation to its outcome; `claim` is what an acknowledgement says of itself."""
        first = self.begin(process, session, count, **options)  # type: ignore[arg-type]
        if outcome == "ok":
            self.ok(process, claim)
        else:
            getattr(self, outcome)(process)
        return first

    def interrupt(self, process: int, count: int) -> None:
        """A turn whose application was killed before the outcome was known."""
        self.begin(process, count=count)
        self.inject("kill-app")
        self.unknown(process)
        self.heal("kill-app")

    def begin_each(self, *processes: int) -> None:
        """Writes that overlap; `ok_each` acknowledges them."""
        for process in processes:
            self.begin(process)

    def ok_each(self, *processes: int) -> None:
        for process in processes:
            self.ok(process)

    def forget(self, process: int, session: str = "s", outcome: str = "ok") -> None:
        self.invoke(process, "forget", session)
        getattr(self, outcome)(process)

    def begin_retract(
        self, process: int, *messages: int, session: str = "s", expect: int | None = None
    ) -> None:
        self.step()
        self.writer.invoke_retract(process, session, RetractAsked(to_runs(messages), expect=expect))

    def retract(
        self, process: int, *messages: int, session: str = "s", outcome: str = "ok", claim: str | None = None
    ) -> int:
        self.begin_retract(process, *messages, session=session)
        return self.ok(process, claim) if outcome == "ok" else int(getattr(self, outcome)(process))

    def replace(
        self,
        process: int,
        *old: int,
        count: int = 1,
        outcome: str = "ok",
        expect: int | None = None,
        base: int | None = None,
    ) -> int:
        """Returns the first message that stands in the place of the old ones."""
        dropped = to_runs(old)
        return self.append(
            process,
            count=count,
            outcome=outcome,
            operation="replace",
            expect=expect,
            base=base,
            dropped=dropped,
        )

    # -- reads --------------------------------------------------------------------------------------------

    def invoke(self, process: int, operation: Operation, session: str = "s") -> None:
        self.step()
        self.writer.invoke(process, session, operation)

    def begin_read(self, process: int, session: str = "s", ask: ReadAsked | None = None) -> None:
        self.step()
        self.writer.invoke_read(process, session, ask)

    def end_read(self, process: int, *shown: int | Element) -> int:
        self.step()
        return self.writer.ok_read(process, _elements(shown))

    def read(
        self, process: int, *shown: int | Element, session: str = "s", ask: ReadAsked | None = None
    ) -> int:
        self.begin_read(process, session, ask)
        return self.end_read(process, *shown)

    def fail_read(self, process: int, session: str = "s", error: str = "NotWritten") -> int:
        self.begin_read(process, session)
        return self.fail(process, error)

    def context(self, process: int, *statements: tuple[ReadAsked, list[int]], session: str = "s") -> int:
        self.invoke(process, "context", session)
        self.step()
        return self.writer.ok_context(process, [(ask, _elements(shown)) for ask, shown in statements])

    def search(self, process: int, listed: list[int], found: list[int], session: str = "s") -> int:
        self.invoke(process, "search", session)
        self.step()
        return self.writer.ok_search(process, listed, found)

    def count(self, process: int, rows: int, session: str = "s") -> int:
        self.invoke(process, "count", session)
        self.step()
        return self.writer.ok(process, RowsCounted(rows))

    # -- disturbances -------------------------------------------------------------------------------------

    def inject(self, fault: str, offset_s: float = 0.0) -> int:
        self.step()
        return self.writer.fault_injected(fault, FaultDetail(offset_s=offset_s) if offset_s else None)

    def heal(self, fault: str) -> int:
        self.step()
        return self.writer.fault_healed(fault)

    def crash(self, fault: str = "kill-engine") -> int:
        """Inject, stop, start, heal; returns the index of the injection."""
        index = self.inject(fault)
        self.restart()
        self.heal(fault)
        return index

    def restart(self) -> None:
        self.step()
        self.writer.engine_stopped()
        self.step()
        self.writer.engine_started()

    # -- the verdict --------------------------------------------------------------------------------------

    def history(self, *, truncated: bool = False) -> RecordedHistory:
        lines = self.file.getvalue().split(b"\n")
        header = msgspec.json.decode(lines[0], type=HistoryHeader)
        events = msgspec.json.Decoder(Event).decode_lines(b"\n".join(lines[1:]))
        return RecordedHistory(header, events, truncated=truncated)

    def verdict(self) -> Verdict:
        return analyze(self.history())

    def names(self) -> list[str]:
        return [anomaly.name for anomaly in self.verdict().anomalies]

    def counts(self) -> dict[str, int]:
        return {anomaly.name: anomaly.count for anomaly in self.verdict().anomalies}

    def firsts(self) -> dict[str, str]:
        """The message of each anomaly's first witness."""
        return {anomaly.name: anomaly.first.message for anomaly in self.verdict().anomalies}

    def only(self) -> Anomaly:
        verdict = self.verdict()
        assert len(verdict.anomalies) == 1, [anomaly.sentence for anomaly in verdict.anomalies]
        return verdict.anomalies[0]


def written(count: int = 3, **header: object) -> Script:
    """A session with some messages by process 1, seen by process 2."""
    script = Script(**header)
    for _ in range(count):
        script.append(1)
    script.read(2, *range(count))
    return script


def _elements(shown: tuple[int | Element, ...] | list[int]) -> list[Element]:
    return [item if isinstance(item, Element) else Element(item, item) for item in shown]
