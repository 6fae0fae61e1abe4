"""One session, read piece by piece: is every sequence accounted for, and every record what was written?

A piece is a snapshot: the session's counters, and some records that follow the previous piece. Between two pieces the
session may change, so each piece is judged by its own counters:

* what was replaced or forgotten meanwhile is below the piece's floor;
* what was retracted meanwhile may have joined a run that begins before the piece, so its first record may be such a
  run;
* a session that is gone, or has fewer sequences than were already read, was erased: it is skipped, or read again.

Nothing but counters is kept, however long the session is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.audit.finding import AuditFinding
from recollect.changing import metadata_of
from recollect.checksum import has_changed, is_checked
from recollect.errors import Unreadable
from recollect.message import Damaged, decode
from recollect.printable import counted
from recollect.tombstone import run_first

FINDINGS_MAX = 100
"""For one session; the rest is only counted."""


@dataclass(frozen=True)
class SessionPiece:
    """A session's counters and some of its records, from one moment."""

    last: int
    floor: int
    """Sequences up to here are gone on purpose."""
    records: list[tuple[int | None, object]]
    """Sequence and record, in order, all above the cursor asked for and the floor; None as the sequence if a list
    element has none."""
    ended: bool
    """Nothing follows."""
    marked: bool = True
    """Whether the session says it may have tombstones."""
    runs: int | None = None
    """How many tombstones the session says it has."""
    counted: tuple[int, int] | None = None
    """How many records there are, and how many there should be by the session's counters."""
    claims: tuple[AuditFinding, ...] = ()
    """Findings from the engine's own counters; only the last piece's count."""
    about: tuple[AuditFinding, ...] = ()
    """Findings about the session's metadata, which is read with the first piece."""


class ErasedMeanwhile(Exception):
    """The session was erased and started over: what was read so far belongs to its earlier life."""


@dataclass
class SessionReading:
    session: str
    findings: list[AuditFinding] = field(default_factory=list)
    gaps: list[AuditFinding] = field(default_factory=list)
    cursor: int = 0
    messages: int = 0
    runs: int = 0
    size: int = 0
    unmarked: bool = False
    unchecked: int = 0
    pieces: int = 0

    def take(self, piece: SessionPiece) -> None:
        """Judges the piece, and moves the cursor behind it."""
        if piece.last < self.cursor:
            raise ErasedMeanwhile
        self.pieces += 1
        self.findings += piece.about
        expected = max(self.cursor, piece.floor) + 1
        for place, (sequence, record) in enumerate(piece.records):
            expected = self._record(piece, sequence, record, expected, begins=place == 0)
        self.cursor = max(self.cursor, expected - 1)
        if piece.ended:
            if expected <= piece.last:
                self._gap(expected, piece.last)
            self._counters(piece)

    def _record(
        self, piece: SessionPiece, sequence: int | None, record: object, expected: int, *, begins: bool
    ) -> int:
        """Judges the record; returns the sequence expected after it."""
        if sequence is None:
            self._found("unreadable", f"an element has no sequence: {_excerpt(record)}", expected)
            return expected + 1
        if sequence > piece.last:
            self._found(
                "counters", f"a record has sequence {sequence}, the session ends at {piece.last}", sequence
            )
            return expected
        if sequence < expected:
            self._found("twice", f"sequence {sequence} is there twice, or out of order", sequence)
            return expected
        run = run_first(record)
        first = sequence if run is None else run
        if first > expected:
            self._gap(expected, min(first, sequence) - 1)
        if run is None:
            self._message(sequence, record)
        else:
            self._run(piece, run, sequence, misplaced=run > sequence or (run < expected and not begins))
        return sequence + 1

    def _message(self, sequence: int, record: object) -> None:
        self.messages += 1
        if isinstance(record, bytes):
            self.size += len(record)
        message = decode(record)  # type: ignore[arg-type]  # it takes whatever an engine holds there
        if isinstance(message, Damaged):
            name = "checksum" if message.reason.startswith("its checksum") else "unreadable"
            self._found(name, f"message {sequence}: {message.reason[:200]}", sequence)
        elif not is_checked(record):  # type: ignore[arg-type]  # what could be decoded is bytes
            self.unchecked += 1

    def _run(self, piece: SessionPiece, run: int, sequence: int, *, misplaced: bool) -> None:
        self.runs += 1
        if misplaced:
            self._found(
                "unreadable",
                f"a run of sequences without messages cannot reach from {run} to {sequence}",
                sequence,
            )
        if not piece.marked:
            self.unmarked = True

    def _counters(self, piece: SessionPiece) -> None:
        self.findings += piece.claims
        if self.unchecked:
            told = f"{counted(self.unchecked, 'message')} without a checksum: whether they have changed cannot be told"
            self._found("unchecked", told)
        if self.unmarked and not piece.marked:
            self._found("counters", "the session says that nothing was ever retracted, and something was")
        if piece.counted is not None and piece.counted[0] != piece.counted[1] and not self.gaps:
            self._found(
                "counters", "there are {:,} records, and the session counts {:,}".format(*piece.counted)
            )
        # Runs read in an earlier piece may have been joined since.
        if piece.runs is not None and self.pieces == 1 and piece.runs != self.runs:
            self._found(
                "counters", f"the session counts {piece.runs} runs without messages, and has {self.runs}"
            )

    def _gap(self, first: int, last: int) -> None:
        which = f"message {first} is" if first == last else f"messages {first} to {last} are"
        sentence = f"{which} gone: not retracted, not replaced, not expired and not forgotten"
        finding = AuditFinding(name="gap", session=self.session, sentence=sentence, first=first, last=last)
        if len(self.gaps) < FINDINGS_MAX:
            self.gaps.append(finding)

    def _found(self, name: str, sentence: str, sequence: int | None = None) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(
                AuditFinding(
                    name=name, session=self.session, sentence=sentence, first=sequence, last=sequence
                )
            )


def metadata_findings(session: str, held: object) -> tuple[AuditFinding, ...]:
    """What is wrong with a session's metadata; None is none."""
    if held is None:
        return ()
    name = "unreadable"
    try:
        if isinstance(held, bytes):
            name = "checksum" if has_changed(held) else name
            metadata_of(session, held)
            return ()
        told = f"its metadata is of type {type(held).__name__}, and the bytes of a record belong there"
    except Unreadable:
        told = "its metadata is not what was written"
    return (AuditFinding(name=name, session=session, sentence=told),)


def lost_turns(session: str, count: int) -> AuditFinding:
    which = "1 turn id is" if count == 1 else f"{count:,} turn ids are"
    told = f"{which} gone: evicted or deleted; a retry of such a turn is stored twice"
    return AuditFinding(name="counters", session=session, sentence=told)


def half_turn(gap: AuditFinding, turns: list[tuple[int, int]]) -> AuditFinding:
    """The gap; as a `half-turn` if it tears one of these turns apart."""
    assert gap.first is not None
    assert gap.last is not None
    for first, last in turns:
        if first < gap.first <= last or first <= gap.last < last:
            sentence = f"{gap.sentence}; its turn is messages {first} to {last}"
            return AuditFinding(
                name="half-turn", session=gap.session, sentence=sentence, first=gap.first, last=gap.last
            )
    return gap


def _excerpt(record: object) -> str:
    return repr(record[:60] if isinstance(record, bytes) else record)[:80]
