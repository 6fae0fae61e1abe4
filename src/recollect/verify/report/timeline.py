"""One run as a picture of time: a saved history, boiled down to what can be seen.

Two passes over the events, and memory that depends on the picture alone: the first finds the stretches where nothing
happened, the second paints every operation into the columns of a lane. Dead time (an engine that restarts, a client
that waits) is cut out and marked, so that the moment before the fault stays wide enough to look at.

A lane is a session. Its writes and its reads are painted apart, because readers run beside writers. Where two
operations fall into one column the worse one is seen: a lost message is never painted over.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from recollect.verify.judging.gathering import collect
from recollect.verify.judging.history import AnyHistory, History, HistoryError
from recollect.verify.judging.losses import losses
from recollect.verify.judging.op import Event, Write

COLUMNS = 1000
LANES_MAX = 4
BANDS_MAX = 6
CUTS_MAX = 6
GAP_LEAST_S = 0.2
GAP_SHARE_LEAST = 0.2
"""A gap is dead time when it is longer than both: this long, and this share of all that remains beside it."""
REST_LEAST_S = 0.02
"""What must remain: a run in which nothing happens is not all dead time."""
CUT_COLUMNS = 40

# Worse last: it wins the column.
WRITES = ("kept", "failed", "unknown", "lost")
READS = ("read", "unread")
_WRITING = frozenset({"append", "save", "forget"})


@dataclass(frozen=True)
class Span:
    """Columns `start` to `end`, painted with `kind`."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class Band:
    """A disturbance: from its first to its last column, and when that was."""

    name: str
    start: int
    end: int
    start_s: float
    end_s: float
    healed: bool


@dataclass(frozen=True)
class Cut:
    """Dead time that is not drawn to scale."""

    start: int
    end: int
    length_s: float


@dataclass(frozen=True)
class Lane:
    name: str
    writes: tuple[Span, ...]
    reads: tuple[Span, ...]


@dataclass(frozen=True)
class Timeline:
    lanes: tuple[Lane, ...]
    faults: tuple[Band, ...]
    down: tuple[Band, ...]
    """When the engine was not there."""
    cuts: tuple[Cut, ...]
    ticks: tuple[tuple[int, float], ...]
    start_s: float
    end_s: float
    counts: dict[str, int]
    """Operations of each kind."""
    scale: Scale


class Scale:
    """Time to columns: in proportion, except for the cuts, which have a fixed width."""

    def __init__(self, start_s: float, end_s: float, gaps: list[tuple[float, float]]) -> None:
        cuts = _dead_time(end_s - start_s, gaps)
        cut_columns = CUT_COLUMNS * len(cuts)
        active_s = max(end_s - start_s - sum(end - begin for begin, end in cuts), 1e-6)
        self.per_s = (COLUMNS - cut_columns) / active_s
        # Knots of the piecewise line: a time, and the column it has.
        self._times, self._columns = [start_s], [0.0]
        for begin, end in cuts:
            self._knot(begin, self.per_s)
            self._knot(end, CUT_COLUMNS / (end - begin))
        self._knot(max(end_s, self._times[-1]), self.per_s)
        self.cuts = tuple(Cut(self.column(begin), self.column(end), end - begin) for begin, end in cuts)

    def _knot(self, time_s: float, per_s: float) -> None:
        self._columns.append(self._columns[-1] + (time_s - self._times[-1]) * per_s)
        self._times.append(time_s)

    def column(self, time_s: float) -> int:
        place = max(1, min(bisect_right(self._times, time_s), len(self._times) - 1))
        before_s, after_s = self._times[place - 1], self._times[place]
        share = (time_s - before_s) / (after_s - before_s) if after_s > before_s else 0.0
        left, right = self._columns[place - 1], self._columns[place]
        return max(0, min(COLUMNS, round(left + share * (right - left))))

    def is_cut(self, column: int) -> bool:
        return any(cut.start < column < cut.end for cut in self.cuts)


@dataclass
class _Paint:
    """The columns of one lane, one byte each: 0 is nothing, n the n-th kind."""

    writes: bytearray = field(default_factory=lambda: bytearray(COLUMNS))
    reads: bytearray = field(default_factory=lambda: bytearray(COLUMNS))
    trouble: int = 0
    """How many operations ended badly: such lanes are kept when there are too many."""


@dataclass
class _Outline:
    """What the first pass finds."""

    start_s: float = 0.0
    end_s: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)


def of_run(folder: Path) -> Timeline | None:
    """The picture of a saved run; None where there is no history to draw."""
    try:
        history = History(folder / "history.jsonl")
        return draw(history)
    except (OSError, HistoryError):
        return None


def draw(history: AnyHistory) -> Timeline | None:
    outline = _outline(history)
    if outline is None:
        return None
    lost = {loss.message for loss in losses(collect(history))}
    scale = Scale(outline.start_s, outline.end_s, outline.gaps)
    painter = _Painter(scale, lost, outline.end_s)
    for event in history:
        painter.see(event)
    painter.end()
    return Timeline(
        lanes=painter.lanes(),
        faults=tuple(painter.faults[:BANDS_MAX]),
        down=tuple(painter.down[:BANDS_MAX]),
        cuts=scale.cuts,
        ticks=_ticks(scale, outline),
        start_s=outline.start_s,
        end_s=outline.end_s,
        counts=painter.counts,
        scale=scale,
    )


def _outline(history: AnyHistory) -> _Outline | None:
    outline = None
    last_s = 0.0
    for event in history:
        if outline is None:
            outline = _Outline(start_s=event.time_s)
        elif event.time_s - last_s > GAP_LEAST_S:
            outline.gaps.append((last_s, event.time_s))
        last_s = event.time_s
        outline.end_s = last_s
    return outline


def _dead_time(total_s: float, gaps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The gaps worth cutting out, in order of time; the longest are asked first."""
    cut: list[tuple[float, float]] = []
    for begin, end in sorted(gaps, key=lambda gap: gap[0] - gap[1])[:CUTS_MAX]:
        rest_s = total_s - (end - begin)
        if end - begin <= GAP_SHARE_LEAST * rest_s or rest_s < REST_LEAST_S:
            break
        cut.append((begin, end))
        total_s = rest_s
    return sorted(cut)


class _Painter:
    """The second pass: pairs invocations with their completions and paints them."""

    def __init__(self, scale: Scale, lost: set[int], end_s: float) -> None:
        self._scale, self._lost, self._end_s = scale, lost, end_s
        self._paints: dict[str, _Paint] = {}
        self._open: dict[int, Event] = {}
        self._fault_since: dict[str, float] = {}
        self._down_since: float | None = None
        self.faults: list[Band] = []
        self.down: list[Band] = []
        self.counts: dict[str, int] = dict.fromkeys((*WRITES, *READS), 0)

    def see(self, event: Event) -> None:
        kind = event.kind
        if kind == "invoke":
            self._open[event.process] = event
        elif kind == "fault-injected":
            self._fault_since.setdefault(event.operation, event.time_s)
        elif kind == "fault-healed":
            self._heal(event.operation, event.time_s, healed=True)
        elif kind == "engine-stopped":
            self._down_since = event.time_s if self._down_since is None else self._down_since
        elif kind == "engine-started":
            self._up(event.time_s, healed=True)
        elif kind in ("ok", "fail", "unknown"):
            self._complete(self._open.pop(event.process), kind, event.time_s)

    def end(self) -> None:
        """What is still open when the history ends."""
        for asked in self._open.values():
            self._complete(asked, "unknown", self._end_s)
        for name in list(self._fault_since):
            self._heal(name, self._end_s, healed=False)
        self._up(self._end_s, healed=False)

    def _heal(self, name: str, time_s: float, *, healed: bool) -> None:
        since_s = self._fault_since.pop(name, None)
        if since_s is not None:
            self.faults.append(self._band(name, since_s, time_s, healed))

    def _up(self, time_s: float, *, healed: bool) -> None:
        if self._down_since is not None:
            self.down.append(self._band("engine down", self._down_since, time_s, healed))
            self._down_since = None

    def _band(self, name: str, start_s: float, end_s: float, healed: bool) -> Band:
        return Band(name, self._scale.column(start_s), self._scale.column(end_s), start_s, end_s, healed)

    def _complete(self, asked: Event, outcome: str, time_s: float) -> None:
        paint = self._paints.setdefault(asked.session, _Paint())
        if asked.operation in _WRITING:
            kind = self._written(asked, outcome)
            row, rank = paint.writes, 1 + WRITES.index(kind)
            paint.trouble += kind in ("lost", "unknown")
        else:
            kind = "read" if outcome == "ok" else "unread"
            row, rank = paint.reads, 1 + READS.index(kind)
        self.counts[kind] += 1
        start = self._scale.column(asked.time_s)
        end = min(COLUMNS, max(self._scale.column(time_s), start + 1))
        start = min(start, end - 1)
        for column in range(start, end):
            if row[column] < rank:
                row[column] = rank

    def _written(self, asked: Event, outcome: str) -> str:
        if outcome != "ok":
            return "failed" if outcome == "fail" else "unknown"
        value = asked.value
        if isinstance(value, Write) and any(
            message in self._lost for message in range(value.first, value.first + len(value.checksums))
        ):
            return "lost"
        return "kept"

    def lanes(self) -> tuple[Lane, ...]:
        """A lane a session; of too many, those with trouble, and the rest painted into one."""
        names = list(self._paints)
        if len(names) > LANES_MAX:
            by_trouble = sorted(names, key=lambda name: -self._paints[name].trouble)
            shown = set(by_trouble[: LANES_MAX - 1])
            rest = [name for name in names if name not in shown]
            names = [name for name in names if name in shown]
            label = f"{len(rest)} others"
            self._paints[label] = _together([self._paints[name] for name in rest])
            names.append(label)
        return tuple(
            Lane(name, _spans(self._paints[name].writes, WRITES), _spans(self._paints[name].reads, READS))
            for name in names
        )


def _together(paints: list[_Paint]) -> _Paint:
    return _Paint(
        writes=bytearray(map(max, zip(*(paint.writes for paint in paints), strict=True))),
        reads=bytearray(map(max, zip(*(paint.reads for paint in paints), strict=True))),
    )


def _spans(row: bytearray, kinds: tuple[str, ...]) -> tuple[Span, ...]:
    spans: list[Span] = []
    start = 0
    for column in range(1, COLUMNS + 1):
        if column == COLUMNS or row[column] != row[start]:
            if row[start]:
                spans.append(Span(kinds[row[start] - 1], start, column))
            start = column
    return tuple(spans)


def coarser(spans: tuple[Span, ...], grain: int, kinds: tuple[str, ...]) -> tuple[Span, ...]:
    """The same spans in columns of `grain`, the worse kind first: fewer of them, nothing bad dropped."""
    if grain == 1:
        return spans
    row = bytearray(COLUMNS)
    for span in spans:
        rank = 1 + kinds.index(span.kind)
        start = span.start // grain * grain
        end = min(COLUMNS, -(-span.end // grain) * grain)
        for column in range(start, end):
            row[column] = max(row[column], rank)
    return _spans(row, kinds)


def _ticks(scale: Scale, outline: _Outline) -> tuple[tuple[int, float], ...]:
    """About eight round times, none inside a cut and none upon another."""
    rough_s = 110 / scale.per_s
    magnitude = 10.0 ** (len(str(int(rough_s))) - 1) if rough_s >= 1 else 0.001
    while rough_s >= magnitude * 10:
        magnitude *= 10
    step_s = next(magnitude * nice for nice in (1, 2, 5, 10) if magnitude * nice >= rough_s)
    ticks: list[tuple[int, float]] = []
    time_s = 0.0 if outline.start_s == 0 else -(-outline.start_s // step_s) * step_s
    while time_s <= outline.end_s and len(ticks) < 40:
        column = scale.column(time_s)
        if not scale.is_cut(column) and column <= COLUMNS - 20 and (not ticks or column - ticks[-1][0] >= 70):
            ticks.append((column, round(time_s, 3)))
        time_s += step_s
    return tuple(ticks)
