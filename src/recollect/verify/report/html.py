"""One HTML page for a whole run: the findings first, then the matrix, then every run with its timeline.

The page is one file that needs no network, fonts or script libraries, so it can be mailed, kept as a CI artefact and
opened in ten years. A content security policy pins its few lines of script (copy, filter, open the run that a link
names) to their exact text: whatever a message contains, nothing else can run. Every text from a run goes through
`plain` and then Jinja's escaping.

Sizes are bounded: the bytes for timelines are divided among the runs. If a share would be too small to show anything,
runs that held keep their figures and lose their picture.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate, takewhile
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from recollect import private
from recollect.printable import counted
from recollect.verify.judging.steps import EVERYONE
from recollect.verify.judging.verdict import WORST_FIRST, Status, Verdict, WitnessEvents
from recollect.verify.matrix.findings import Finding, findings, meanings
from recollect.verify.matrix.results import Result, Results
from recollect.verify.report import svg
from recollect.verify.report.plain import plain
from recollect.verify.report.symbols import STYLES, against, client_of, orders_tried, size_of, why_left_out
from recollect.verify.report.timeline import Timeline, of_history

PICTURES_BYTES = 160_000
PICTURE_BYTES_MAX = 6_000
PICTURE_BYTES_LEAST = 500
NAMES_MAX = 3
ANOMALIES_MAX = 5
"""How many sentences a run shows; the verdict's JSON has them all."""

WORDS: dict[Status, str] = {
    "held": "held",
    "documented-loss": "documented loss",
    "exposed": "exposed",
    "violated": "violated",
    "unknown": "unknown",
    "skipped": "skipped",
}
MEANINGS: dict[Status, str] = {
    "violated": "something happened that the engine's own promise does not allow",
    "unknown": "nothing could be concluded; this is not a success",
    "documented-loss": "acknowledged messages were lost, within what the engine's own documentation allows",
    "exposed": "the store did what it says, but its caller is left unprotected",
    "held": "everything acknowledged was there",
    "skipped": "not run, for the reason given",
}

TAKEN = frozenset(
    {"silent-reset", "lost-update", "trimmed", "dropped", "torn-turn", "lost-tail", "hole", "expired-early"}
)
"""Anomalies whose witness is an acknowledged message that is gone."""


@dataclass(frozen=True)
class Picture:
    svg: Markup
    lanes: tuple[tuple[str, str], ...]
    """For each lane, the part of the session id that all share, and the rest."""


@dataclass(frozen=True)
class Card:
    """One run, as the page shows it."""

    anchor: str
    result: Result
    title: tuple[str, ...]
    figure: str
    picture: Picture | None
    replay: str | None

    @property
    def status(self) -> Status:
        return self.result.verdict.status

    @property
    def verdict(self) -> Verdict:
        return self.result.verdict

    @property
    def first_lost(self) -> WitnessEvents | None:
        return first_lost(self.verdict)


@dataclass(frozen=True)
class FindingStep:
    """One row of a finding's smallest run: its column, and its text."""

    number: int
    column: int | None
    """None if it stands for steps that are left out."""
    text: str
    told: bool


@dataclass(frozen=True)
class FindingCard:
    """One finding, as the page shows it."""

    finding: Finding
    meaning: str
    columns: tuple[str, ...]
    steps: tuple[FindingStep, ...]
    size: str
    cells: tuple[tuple[str, str | None], ...]
    """Names of cells, with the anchors of their runs."""
    hides: tuple[str, ...]
    news: str
    """Whether the baseline has it; empty without a baseline."""


@dataclass(frozen=True)
class Box:
    """One cell of the matrix: the worst of its runs."""

    status: Status
    symbol: str
    figure: str
    label: str
    anchor: str | None
    runs: int


@dataclass(frozen=True)
class MatrixColumn:
    target: str
    full_target: str
    policy: str


@dataclass(frozen=True)
class MatrixRow:
    fault: str
    boxes: tuple[Box | None, ...]

    @property
    def held(self) -> bool:
        return all(box is None or box.status in ("held", "skipped") for box in self.boxes)


@dataclass(frozen=True)
class Group:
    """Cells that were skipped for the same reason."""

    reason: str
    cells: int
    names: tuple[str, ...]


def write(results: Results, file: Path) -> None:
    private.write_artifact(file, render(results))


def render(results: Results) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    cards = _cards(results)
    counts = results.counts
    anchors = {id(card.result): card.anchor for card in cards}
    columns, rows = _matrix(results, anchors)
    found = findings(results)
    ran = [result for result in results.results if result.verdict.status != "skipped"]
    return _template().render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        results=results,
        headline=headline(results, found),
        against="" if results.baseline is None else against(results.baseline),
        found=[_finding_card(finding, results, anchors) for finding in found],
        worst=next(iter(counts), "unknown"),
        counts=counts,
        ran=sum(result.began for result in ran),
        operations=sum(result.operations for result in ran),
        columns=columns,
        rows=[row for row in rows if not row.held],
        held_rows=[row for row in rows if row.held],
        several_targets=len({column.full_target for column in columns}) > 1,
        folds={
            status: members
            for status in counts
            if (members := [card for card in cards if card.status == status])
        },
        glossary=_glossary(results),
        groups=_groups(results),
        overridden=[f"{plain(sentence)}." for sentence in results.overridden],
        words=WORDS,
        meanings=MEANINGS,
        anomalies_max=ANOMALIES_MAX,
        symbols={status: symbol for status, (symbol, _) in STYLES.items()},
    )


def headline(results: Results, found: Sequence[Finding]) -> tuple[str, str]:
    """The verdict of the whole run in one sentence, and a second one with the figures."""
    ran = [result for result in results.results if result.verdict.status != "skipped"]
    violated = [result for result in ran if result.verdict.status == "violated"]
    documented = [result for result in ran if result.verdict.status == "documented-loss"]
    unknown = [result for result in ran if result.verdict.status == "unknown"]
    exposed = [result for result in ran if result.verdict.status == "exposed"]
    if violated:
        names = list(dict.fromkeys(finding.name for finding in found))
        first = f"{len(found)} finding{'s'[: len(found) > 1]}: {', '.join(names[:NAMES_MAX])}"
        if len(names) > NAMES_MAX:
            first += f" and {len(names) - NAMES_MAX} more"
        said = _lost_sentence(violated, "and no promise covers it", covered=_covered(violated))
        return first, said + _beside(documented, unknown)
    if not ran or len(unknown) == len(ran):
        return "Nothing could be concluded", "No run came far enough to tell; the reasons are below."
    concluded = len(ran) - len(unknown)
    if documented:
        return (
            f"{len(documented)} of {_runs(len(ran))} lost messages, as the engine announces",
            _lost_sentence(documented, "as the engine's own documentation says they may be")
            + f" In {_runs(concluded - len(documented))} everything was kept."
            + _beside([], unknown),
        )
    if exposed:
        return (
            f"{_runs(len(exposed))} of {len(ran)} left the caller unprotected",
            f"{(exposed[0].verdict.reason or '').capitalize()}." + _beside([], unknown),
        )
    acked = sum(result.verdict.acked for result in ran)
    return (
        "Everything acknowledged was still there",
        f"{acked:,} messages were acknowledged in {_runs(concluded)}, and every one was accounted for after the fault."
        + _beside([], unknown),
    )


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def _covered(results: list[Result]) -> int:
    """Lost messages that a promise covers, in runs that are violated for another reason."""
    return sum(
        anomaly.count
        for result in results
        for anomaly in result.verdict.anomalies
        if anomaly.covered and anomaly.name in TAKEN
    )


def _lost_sentence(results: list[Result], why: str, covered: int = 0) -> str:
    lost = sum(result.verdict.lost for result in results) - covered
    acked = sum(result.verdict.acked for result in results)
    if not lost:
        return "No acknowledged message is missing, but something else went wrong; see the runs."
    runs = _runs(len(results)).replace("1 run", "one run")
    gone = "changed" if all(result.verdict.what_befell == "changed" for result in results) else "gone"
    return f"{lost:,} of the {acked:,} messages acknowledged in {runs} {'is' if lost == 1 else 'are'} {gone}, {why}."


def _beside(documented: list[Result], unknown: list[Result]) -> str:
    text = f" In {len(documented):,} more, messages were lost as documented." if documented else ""
    return text + (f" In {_runs(len(unknown))} nothing could be concluded." if unknown else "")


# ---- findings


def _finding_card(finding: Finding, results: Results, anchors: dict[int, str]) -> FindingCard:
    processes = sorted({step.process for step in finding.steps if step.process != EVERYONE})
    names = [client_of(finding, process) for process in processes]
    outside = any(step.is_outside for step in finding.steps)
    columns = [*processes, EVERYONE]
    numbers = accumulate(int(not step.left_out) for step in finding.steps)
    steps = tuple(
        FindingStep(
            number=number,
            column=None if step.left_out else columns.index(step.process),
            text=step.text,
            told=step.told,
        )
        for number, step in zip(numbers, finding.steps, strict=True)
    )
    members = [results.results[place] for place in finding.cells]
    return FindingCard(
        finding=finding,
        meaning=meanings().get(finding.name, ""),
        columns=(*names, *(["engine"] if outside else [])),
        steps=steps,
        size=size_of(finding),
        cells=tuple((member.scenario.place, anchors.get(id(member))) for member in members),
        hides=tuple(results.results[place].scenario.place for place in finding.hides),
        news=_news(finding, results),
    )


def _news(finding: Finding, results: Results) -> str:
    if results.baseline is None:
        return ""
    return "new" if finding.number in results.baseline.new else "known"


def _glossary(results: Results) -> list[tuple[str, str]]:
    """The verdicts and anomalies that occur on this page, explained."""
    there = {result.verdict.status for result in results.results}
    verdicts = [(WORDS[status], MEANINGS[status]) for status in WORST_FIRST if status in there]
    names = {anomaly.name for result in results.results for anomaly in result.verdict.anomalies}
    known = meanings()
    return verdicts + [(name, known[name]) for name in known if name in names]


# ---- cards


def _cards(results: Results) -> list[Card]:
    """Every run that was not skipped, worst first, otherwise in the order of the matrix."""
    ran = [(number, result) for number, result in enumerate(results.results, 1) if _ran(result)]
    ran.sort(key=lambda item: WORST_FIRST.index(item[1].verdict.status))
    budgets = _budgets([result for _, result in ran])
    return [
        _card(result, number, results, budget) for (number, result), budget in zip(ran, budgets, strict=True)
    ]


def _ran(result: Result) -> bool:
    return result.verdict.status != "skipped"


def _budgets(ran: list[Result]) -> list[int]:
    """Bytes for each picture; 0 for a run that held and has to do without one."""
    share = PICTURES_BYTES // max(1, len(ran))
    if share >= PICTURE_BYTES_LEAST:
        return [min(PICTURE_BYTES_MAX, share)] * len(ran)
    room = PICTURES_BYTES // PICTURE_BYTES_LEAST
    return [PICTURE_BYTES_LEAST if before < room else 0 for before in range(len(ran))]


def _card(result: Result, number: int, results: Results, budget: int) -> Card:
    scenario, verdict = result.scenario, result.verdict
    engine = f"{scenario.engine_name} {result.engine_version}".strip()
    title = (
        scenario.target,
        result.release,
        engine,
        scenario.policy,
        scenario.fault,
        scenario.variant,
        scenario.workload,
        result.given,
    )
    history = results.history_of(result)
    return Card(
        anchor=f"run-{number}",
        result=result,
        title=tuple(part for part in title if part),
        figure=orders_tried(result) or _figure(verdict),
        picture=_picture(result, Path(history), budget) if history and budget else None,
        replay=results.replay_of(result),
    )


def _figure(verdict: Verdict) -> str:
    if verdict.status == "unknown":
        return plain(verdict.reason or "no reason given")
    if verdict.lost:
        return f"{verdict.lost:,} of {verdict.acked:,} acknowledged {verdict.what_befell}"
    if verdict.anomalies:
        first = verdict.anomalies[0]
        return f"{first.name} × {first.count:,}, {verdict.account}"
    return f"{verdict.acked:,} acknowledged, none lost"


def first_lost(verdict: Verdict) -> WitnessEvents | None:
    """Of the lost messages that the verdict names, the one that was acknowledged first."""
    found = [
        anomaly.first
        for anomaly in verdict.anomalies
        if anomaly.name in TAKEN and anomaly.first.acknowledged_s is not None
    ]
    return min(found, key=lambda witness: witness.acknowledged_s or 0.0, default=None)


def _picture(result: Result, history: Path, budget: int) -> Picture | None:
    timeline = of_history(history)
    if timeline is None:
        return None
    first = first_lost(result.verdict)
    drawn = svg.drawing(timeline, _spoken(timeline), first.acknowledged_s if first else None, budget)
    names = [lane.name for lane in timeline.lanes]
    shared = _shared_length(names)
    return Picture(drawn, tuple((plain(name[:shared]), plain(name[shared:])) for name in names))


def _shared_length(names: list[str]) -> int:
    """How many characters all names begin with."""
    if len(names) < 2:
        return 0
    columns = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _spoken(timeline: Timeline) -> str:
    """The picture in words, for screen readers."""
    counts = timeline.counts
    parts = [
        f"{counts['kept'] + counts['lost']} acknowledged writes, {counts['lost']} of them lost",
        f"{counts['unknown']} with unknown outcome",
        f"{counts['read']} reads",
    ]
    bands = [
        f"{plain(band.name)} from {band.start_s:.2f} s to {band.end_s:.2f} s"
        for band in (*timeline.faults, *timeline.down)
    ]
    span = f"Timeline of {counted(len(timeline.lanes), 'session')}, {timeline.end_s - timeline.start_s:.1f} s"
    return f"{span}: {', '.join(parts)}. {'; '.join(bands)}".strip()


# ---- matrix


def _matrix(results: Results, anchors: dict[int, str]) -> tuple[list[MatrixColumn], list[MatrixRow]]:
    """A column for each target and policy that ran anywhere, on each engine, and a row for each fault."""
    grouped: dict[tuple[str, str], dict[str, list[Result]]] = {}
    faults: dict[str, None] = {}
    for result in results.results:
        scenario = result.scenario
        column = grouped.setdefault((scenario.target, results.column_of(result)), {})
        column.setdefault(scenario.fault, []).append(result)
        if _ran(result):
            faults.setdefault(scenario.fault)
    names = _short_names({target for target, _ in grouped})
    order = list(dict.fromkeys(target for target, _ in grouped))
    there = [
        place
        for place, column in sorted(grouped.items(), key=lambda item: order.index(item[0][0]))
        if any(_ran(result) for group in column.values() for result in group)
    ]
    rows = [
        MatrixRow(fault, tuple(_box(grouped[place].get(fault, []), anchors) for place in there))
        for fault in faults
    ]
    return [MatrixColumn(names[target], target, policy) for target, policy in there], rows


def _short_names(targets: set[str]) -> dict[str, str]:
    """``make_store`` for ``myapp.memory:make_store``; with the module's name if two would look alike."""
    short = {target: target.rpartition(":")[2] or target for target in targets}
    longer = {target: target.rpartition(".")[2] or target for target in targets}
    taken = list(short.values())
    return {target: name if taken.count(name) == 1 else longer[target] for target, name in short.items()}


def _box(results: list[Result], anchors: dict[int, str]) -> Box | None:
    if not results:
        return None
    worst = min(results, key=lambda result: WORST_FIRST.index(result.verdict.status))
    status, scenario = worst.verdict.status, worst.scenario
    same = [result.verdict for result in results if result.verdict.status == status]
    acked, lost = sum(verdict.acked for verdict in same), sum(verdict.lost for verdict in same)
    figure = f"{lost:,}/{acked:,}" if lost else f"{acked:,}"
    told = f"{lost} of {acked} lost" if lost else f"{acked} acknowledged, none lost"
    if status in ("skipped", "unknown"):
        figure, told = "", worst.verdict.reason or "no reason given"
    elif worst.verdict.anomalies and not lost:
        figure, told = worst.verdict.anomalies[0].name, _figure(worst.verdict)
    runs = f", {len(results)} runs" if len(results) > 1 else ""
    label = f"{scenario.target}, {scenario.policy}, {scenario.fault}: {WORDS[status]}, {told}{runs}"
    return Box(status, STYLES[status][0], figure, plain(label), anchors.get(id(worst)), len(results))


def _groups(results: Results) -> list[Group]:
    return [
        Group(
            plain(why_left_out(reason)),
            len(cells),
            tuple(dict.fromkeys(plain(f"{cell.scenario.target} {cell.scenario.fault}") for cell in cells)),
        )
        for reason, cells in results.reasons("skipped").items()
    ]


# ---- the template


def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["plain"] = plain
    environment.filters["counted"] = counted
    return environment.from_string(_asset("page.html.j2"))


def _asset(name: str) -> str:
    return files("recollect.verify.report").joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The hash by which a content security policy allows an inline style or script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
