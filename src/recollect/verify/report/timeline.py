"""One run as a timeline: its course, boiled down to what can be seen.

It takes two passes over the course, and memory that depends on the picture alone: the first pass finds the stretches
where nothing happened, the second paints every operation into the columns of a lane. Dead time (an engine that
restarts, a client that waits) is cut out and marked, so that the moment before the fault stays wide enough to see.

A lane is a session. Its writes and reads are painted separately, because readers run beside writers. If two operations
fall into one column, the worse one is shown: a lost message is never painted over.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from recollect.verify.judging.course import Course, Performed, Spell
from recollect.verify.judging.history import History, HistoryError

COLUMNS = 1000
LANES_MAX = 4
BANDS_MAX = 6
CUTS_MAX = 6
GAP_LEAST_S = 0.2
GAP_SHARE_LEAST = 0.2
"""A gap is dead time if it is longer than both the time above and this share of the rest of the picture."""
REST_LEAST_S = 0.02
"""How much must remain: a run in which nothing happens is not all dead time."""
CUT_COLUMNS = 40

# The worse kind comes later and wins the column.
WRITES = ("kept", "failed", "unknown", "lost")
READS = ("read", "unread")


@dataclass(frozen=True)
class Span:
    """Columns `start` to `end`, painted with `kind`."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class Band:
    """A disturbance: its first and last column, and its times."""

    name: str
    start: int
    end: int
    start_s: float
    end_s: float
    healed: bool


@dataclass(frozen=True)
class DeadTime:
    """A stretch of dead time, not drawn to scale."""

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
    """When the engine was down."""
    cuts: tuple[DeadTime, ...]
    ticks: tuple[tuple[int, float], ...]
    start_s: float
    end_s: float
    counts: dict[str, int]
    """How many operations there were of each kind."""
    scale: Scale


class Scale:
    """Time to columns: proportional, except for the cuts, which have a fixed width."""

    def __init__(self, start_s: float, end_s: float, gaps: list[tuple[float, float]]) -> None:
        cuts = _dead_time(end_s - start_s, gaps)
        cut_columns = CUT_COLUMNS * len(cuts)
        active_s = max(end_s - start_s - sum(end - begin for begin, end in cuts), 1e-6)
        self.per_s = (COLUMNS - cut_columns) / active_s
        # Knots of the piecewise line: a time and its column.
        self._times, self._columns = [start_s], [0.0]
        for begin, end in cuts:
            self._knot(begin, self.per_s)
            self._knot(end, CUT_COLUMNS / (end - begin))
        self._knot(max(end_s, self._times[-1]), self.per_s)
        self.cuts = tuple(DeadTime(self.column(begin), self.column(end), end - begin) for begin, end in cuts)

    def _knot(self, time_s: float, per_s: float) -> None:
        self._columns.append(self._columns[-1] + (time_s - self._times[-1]) * per_s)
        self._times.append(time_s)

    def column(self, time_s: float) -> int:
        knot = max(1, min(bisect_right(self._times, time_s), len(self._times) - 1))
        before_s, after_s = self._times[knot - 1], self._times[knot]
        share = (time_s - before_s) / (after_s - before_s) if after_s > before_s else 0.0
        left, right = self._columns[knot - 1], self._columns[knot]
        return max(0, min(COLUMNS, round(left + share * (right - left))))

    def is_cut(self, column: int) -> bool:
        return any(cut.start < column < cut.end for cut in self.cuts)


@dataclass
class _Paint:
    """The columns of one lane, one byte each: 0 is nothing, n is the n-th kind."""

    writes: bytearray = field(default_factory=lambda: bytearray(COLUMNS))
    reads: bytearray = field(default_factory=lambda: bytearray(COLUMNS))
    trouble: int = 0
    """How many operations ended badly: if there are too many lanes, those with the most are kept."""


@dataclass
class _Outline:
    """What the first pass finds."""

    start_s: float = 0.0
    end_s: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)


def of_history(path: Path) -> Timeline | None:
    """The picture of a saved history; None if there is nothing to draw."""
    try:
        return draw(Course(History(path)))
    except (OSError, HistoryError):
        return None


def draw(course: Course) -> Timeline | None:
    outline = _outline(course)
    if outline is None:
        return None
    scale = Scale(outline.start_s, outline.end_s, outline.gaps)
    painter = _Painter(scale)
    for happened in course:
        if isinstance(happened, Performed):
            painter.paint(happened)
        else:
            painter.band(happened)
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


def _outline(course: Course) -> _Outline | None:
    outline = None
    for moment_s in course.moments():
        if outline is None:
            outline = _Outline(start_s=moment_s, end_s=moment_s)
        elif moment_s - outline.end_s > GAP_LEAST_S:
            outline.gaps.append((outline.end_s, moment_s))
        outline.end_s = moment_s
    return outline


def _dead_time(total_s: float, gaps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The gaps worth cutting out, in order of time; the longest are considered first."""
    cut: list[tuple[float, float]] = []
    for begin, end in sorted(gaps, key=lambda gap: gap[0] - gap[1])[:CUTS_MAX]:
        rest_s = total_s - (end - begin)
        if end - begin <= GAP_SHARE_LEAST * rest_s or rest_s < REST_LEAST_S:
            break
        cut.append((begin, end))
        total_s = rest_s
    return sorted(cut)


class _Painter:
    """The second pass: operations go into their lanes, faults and down times into bands."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._paints: dict[str, _Paint] = {}
        self.faults: list[Band] = []
        self.down: list[Band] = []
        self.counts: dict[str, int] = dict.fromkeys((*WRITES, *READS), 0)

    def band(self, spell: Spell) -> None:
        start, end = self._scale.column(spell.start_s), self._scale.column(spell.end_s)
        band = Band(spell.name, start, end, spell.start_s, spell.end_s, spell.over)
        (self.down if spell.down else self.faults).append(band)

    def paint(self, done: Performed) -> None:
        paint = self._paints.setdefault(done.session, _Paint())
        if done.fate in WRITES:
            row, rank = paint.writes, 1 + WRITES.index(done.fate)
            paint.trouble += done.fate in ("lost", "unknown")
        else:
            row, rank = paint.reads, 1 + READS.index(done.fate)
        self.counts[done.fate] += 1
        start = self._scale.column(done.start_s)
        end = min(COLUMNS, max(self._scale.column(done.end_s), start + 1))
        start = min(start, end - 1)
        for column in range(start, end):
            if row[column] < rank:
                row[column] = rank

    def lanes(self) -> tuple[Lane, ...]:
        """One lane per session; if there are too many, those with trouble, and the rest painted into one."""
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
    """The same spans in columns of `grain`, the worse kind first: fewer spans, but nothing bad is dropped."""
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
    """About eight round times, none inside a cut and none on top of another."""
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
