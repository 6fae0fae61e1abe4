"""A timeline as SVG, written by hand, in a bounded number of bytes.

Text must keep its size on a phone while the marks shrink with the page. So the outer drawing has no view box and its
text is placed by percentages. The marks are in an inner drawing that is stretched sideways. Lanes are named beside it,
in HTML.

All marks of one kind in one lane are one path of relative strokes, six bytes each; columns are made coarser until the
whole fits its budget. Colours and patterns come from the style sheet: kinds are classes. Nothing here holds text from a
run except what `Markup.format` has escaped.
"""

from __future__ import annotations

from markupsafe import Markup

from recollect.verify.report.plain import plain
from recollect.verify.report.timeline import COLUMNS, READS, WRITES, Band, Lane, Span, Timeline, coarser

HEAD_PX = 30
LANE_PX = 28
AXIS_PX = 20
GRAINS = (2, 3, 4, 6, 8, 12, 16, 24, 40)

_STRIPS = {
    # Distance from the lane's upper edge to the middle of the strip; the style sheet's stroke width is its height.
    "kept": 10,
    "failed": 10,
    "unknown": 10,
    "lost": 10,
    "read": 22,
    "unread": 22,
}
_WIDTH_LEAST = {"lost": 4, "unknown": 3, "unread": 3}
"""The least width of a mark that matters, in columns: a narrower one would vanish on a phone."""


def lane_height_px(timeline: Timeline) -> int:
    return LANE_PX * len(timeline.lanes)


def drawing(timeline: Timeline, label: str, first_lost_s: float | None, budget_bytes: int) -> Markup:
    """The whole picture. `label` is what a screen reader says instead."""
    lanes_px = lane_height_px(timeline)
    height_px = HEAD_PX + lanes_px + AXIS_PX
    parts = [
        Markup('<svg class="tl" width="100%" height="{}" role="img" aria-label="{}">').format(
            height_px, label
        ),
        _inner(timeline, lanes_px, budget_bytes),
        *(_fault_label(band) for band in timeline.faults),
        *(_cut_label(cut.start + cut.end, cut.length_s, height_px) for cut in timeline.cuts),
        *(_tick(column, time_s, number, height_px) for number, (column, time_s) in enumerate(timeline.ticks)),
    ]
    if first_lost_s is not None:
        parts.append(_pin(timeline.scale.column(first_lost_s), lanes_px))
    return Markup("").join([*parts, Markup("</svg>")])


def _inner(timeline: Timeline, lanes_px: int, budget_bytes: int) -> Markup:
    """Everything that is stretched: bands, cuts, marks."""
    height_px = HEAD_PX + lanes_px
    marks = next(
        (made for grain in GRAINS if len(made := _marks(timeline.lanes, grain)) <= budget_bytes),
        _marks(timeline.lanes, GRAINS[-1]),
    )
    shapes = [
        f'<svg width="100%" height="{height_px}" viewBox="0 0 {COLUMNS} {height_px}" preserveAspectRatio="none">',
        *(_box("b", band.start, band.end, 0, height_px) for band in timeline.faults),
        *(_box("d", band.start, band.end, HEAD_PX - 4, 4) for band in timeline.down),
        *(_box("c", cut.start, cut.end, HEAD_PX, lanes_px) for cut in timeline.cuts),
        marks,
        "</svg>",
    ]
    return Markup("".join(shapes))  # numbers and class names only


def _box(name: str, start: int, end: int, top: int, height: int) -> str:
    return f'<path class="{name}" d="M{start} {top}h{max(2, end - start)}v{height}H{start}z"/>'


def _marks(lanes: tuple[Lane, ...], grain: int) -> str:
    paths = []
    for number, lane in enumerate(lanes):
        top = HEAD_PX + number * LANE_PX
        spans = (*coarser(lane.writes, grain, WRITES), *coarser(lane.reads, grain, READS))
        for kind in (*WRITES, *READS):
            chosen = [span for span in spans if span.kind == kind]
            if chosen:
                paths.append(f'<path class="{kind}" d="{_strokes(chosen, kind, top + _STRIPS[kind])}"/>')
    return "".join(paths)


def _strokes(spans: list[Span], kind: str, y: int) -> str:
    least = _WIDTH_LEAST.get(kind, 1)
    first = spans[0].start
    text, position = f"M{first} {y}", first
    for span in spans:
        if span.start != position:
            text += f"m{span.start - position} 0"
        width = max(least, span.end - span.start)
        text += f"h{width}"
        position = span.start + width
    return text


def _fault_label(band: Band) -> Markup:
    """To the right of the band's beginning, or to the left if there is no room."""
    left = band.start < 0.72 * COLUMNS
    return Markup('<text class="f" x="{:.1f}%" dx="{}" y="13"{}>{}</text>').format(
        band.start / COLUMNS * 100,
        5 if left else -5,
        Markup("" if left else ' text-anchor="end"'),
        plain(band.name),
    )


def _cut_label(doubled_middle: int, length_s: float, height_px: int) -> Markup:
    return Markup('<text class="x" x="{:.1f}%" y="{}" text-anchor="middle">{}</text>').format(
        doubled_middle / 2 / COLUMNS * 100, height_px - AXIS_PX - 3, duration(length_s)
    )


def _tick(column: int, time_s: float, number: int, height_px: int) -> Markup:
    odd = " o" if number % 2 else ""
    anchor = "start" if column < 15 else "middle"
    return Markup('<text class="t{}" x="{:.1f}%" y="{}" text-anchor="{}">{} s</text>').format(
        odd, column / COLUMNS * 100, height_px - 5, anchor, f"{time_s:g}"
    )


def _pin(column: int, lanes_px: int) -> Markup:
    """Where the first lost message was acknowledged."""
    x = f"{column / COLUMNS * 100:.1f}%"
    end = ' text-anchor="end"' if column > COLUMNS / 5 else ""
    offset = -5 if end else 5
    return Markup(
        f'<line class="p" x1="{x}" x2="{x}" y1="18" y2="{HEAD_PX + lanes_px}"/>'
        f'<text class="p" x="{x}" dx="{offset}" y="26"{end}>first lost</text>'
    )


def duration(length_s: float) -> str:
    """``0.4 s``, ``12 s``, ``3 min``: short enough for a picture."""
    if length_s < 10:
        return f"{length_s:.1f} s"
    return f"{length_s:.0f} s" if length_s < 120 else f"{length_s / 60:.0f} min"
