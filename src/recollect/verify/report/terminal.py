"""The terminal: live progress while cells run, then one table, then each violation as one plain sentence."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recollect.verify.judging.verdict import WORST_FIRST, Status
from recollect.verify.matrix.matrix import CellEvent
from recollect.verify.matrix.results import Result, Results
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.workloads import WORKLOADS

STYLES: dict[Status, tuple[str, str]] = {
    "held": ("✓", "green"),
    "documented-loss": ("◐", "yellow"),
    "exposed": ("◌", "yellow"),
    "violated": ("✗", "bold red"),
    "unknown": ("?", "magenta"),
    "skipped": ("·", "dim"),
}

LEGEND = """✓ held: nothing acknowledged was lost      ◐ documented loss: inside the engine's own promise
◌ exposed: nothing protects the caller
✗ violated      ? unknown      · skipped      figures: messages acknowledged, or lost/acknowledged"""


class LiveProgress:
    """Live progress on a terminal; one line per cell elsewhere."""

    def __init__(self, console: Console, cells: int, budget_s: float | None = None) -> None:
        self._console = console
        self._cells = cells
        self._budget_s = budget_s
        self._started = time.monotonic()
        self._ended = 0
        self._current: dict[str, str] = {}
        self._lost = {"documented-loss": 0, "violated": 0}
        self._live = (
            Live(get_renderable=self._picture, console=console, refresh_per_second=8, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> LiveProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: CellEvent) -> None:
        name = _short(event.scenario)
        if event.kind == "ended":
            self._ended += 1
            self._current.pop(name, None)
            assert event.result is not None
            verdict = event.result.verdict
            if verdict.status in self._lost:
                self._lost[verdict.status] += verdict.lost
            if self._live is None:
                self._console.print(
                    _line(event.result, self._ended, self._cells), highlight=False, soft_wrap=True
                )
        else:
            self._current[name] = event.step
            if event.step in ("confirm", "shrink"):
                self._current = {name: "running it again"}

    def _picture(self) -> Group:
        """Also asked for between events, by the display's own thread: time goes on while a cell hangs."""
        elapsed_s = time.monotonic() - self._started
        left = "" if (left_s := self._left_s(elapsed_s)) is None else f", about {left_s:.0f} s left"
        bar = ProgressBar(total=max(1, self._cells), completed=min(self._ended, self._cells), width=40)
        lost = f"{self._lost['documented-loss']} lost as documented, {self._lost['violated']} lost against the promise"
        head = Text(f"{self._ended}/{self._cells} cells, {elapsed_s:.0f} s{left} · {lost}")
        current = [Text(f"  {name}: {step}", style="dim") for name, step in list(self._current.items())[-4:]]
        return Group(bar, head, *current)

    def _left_s(self, elapsed_s: float) -> float | None:
        if not self._ended:
            return None if self._budget_s is None else max(0.0, self._budget_s - elapsed_s)
        by_rate_s = (self._cells - self._ended) * elapsed_s / self._ended
        return by_rate_s if self._budget_s is None else max(0.0, min(by_rate_s, self._budget_s - elapsed_s))


def _short(scenario: Scenario) -> str:
    parts = (scenario.target, scenario.policy, scenario.fault, scenario.variant, scenario.workload)
    return " ".join(part for part in parts if part)


def _line(result: Result, number: int, cells: int) -> Text:
    symbol, style = STYLES[result.verdict.status]
    line = Text(f"[{number}/{cells}] ")
    line.append(f"{symbol} {result.verdict.status}", style=style)
    line.append(f"  {_short(result.scenario)}  {_figure(result)}  {result.elapsed_s:.1f} s")
    return line


def show(console: Console, results: Results) -> None:
    """The table, the violations, and what could not be concluded."""
    tables = _tables(results.results, console.width)
    for table in tables:
        console.print(table)
    if tables:
        console.print(Text(LEGEND, style="dim"))
    _violations(console, results)
    _exposed(console, results)
    _losses(console, results)
    _left_out(console, results)
    _notes(console, results)
    ran = [result for result in results.results if result.verdict.status != "skipped"]
    operations = sum(result.operations for result in ran)
    counts = ", ".join(
        f"{count} {status}"
        for status in WORST_FIRST
        if (count := sum(result.verdict.status == status for result in results.results))
    )
    if not counts:
        counts = (
            f"shard {results.shard} has no cells, the other shards have them all"
            if results.shard
            else "no workload fits what the target can do"
        )
    seeds = f"seed{'s'[: len(results.seeds) > 1]} {', '.join(map(str, results.seeds))}"
    console.print(
        f"{len(ran)} cells, {operations} operations in {results.elapsed_s:.1f} s: {counts} ({seeds})",
        highlight=False,
    )


def _tables(results: Iterable[Result], width: int) -> list[Table]:
    """Target × policy rows and fault columns; as many tables as it takes for every column to be readable."""
    results = list(results)
    names = _names({result.scenario.target for result in results})
    rows: dict[tuple[str, str], dict[str, list[Result]]] = {}
    faults: dict[str, None] = {}
    for result in results:
        scenario = result.scenario
        faults.setdefault(scenario.fault)
        row = rows.setdefault((names[scenario.target], scenario.policy), {})
        row.setdefault(scenario.fault, []).append(result)
    ordered = sorted(rows.items(), key=lambda item: item[0][0])
    columns = [
        (fault, [_cell(row.get(fault, [])) for _, row in ordered])
        for fault in faults
        if any(_ran(row.get(fault, [])) for _, row in ordered)
    ]
    if not columns:
        return []
    taken = sum(max((len(name[part]) for name in rows), default=0) for part in (0, 1))
    return [_table([name for name, _ in ordered], band) for band in _bands(columns, width - taken - 8)]


def _names(targets: set[str]) -> dict[str, str]:
    """A target's row: its factory's name alone, where no other target has a factory of that name."""
    short = [target.rpartition(":")[2] for target in targets]
    return {
        target: name if short.count(name) == 1 else target
        for target, name in zip(targets, short, strict=True)
    }


Column = tuple[str, list[Text]]


def _bands(columns: list[Column], width: int) -> list[list[Column]]:
    """The columns in groups that fit side by side."""
    bands: list[list[Column]] = [[]]
    left = width
    for fault, cells in columns:
        needed = max(*(len(part) for part in _heading(fault).split("\n")), *(len(cell) for cell in cells)) + 3
        if needed > left and bands[-1]:
            bands.append([])
            left = width
        bands[-1].append((fault, cells))
        left -= needed
    return bands


def _heading(fault: str) -> str:
    return fault.replace("-", "-\n")


def _table(names: list[tuple[str, str]], columns: list[Column]) -> Table:
    table = Table(pad_edge=False)
    table.add_column("target", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for fault, _ in columns:
        table.add_column(_heading(fault), justify="right", no_wrap=True)
    for number, (target, policy) in enumerate(names):
        row = [cells[number] for _, cells in columns]
        if any(row):
            table.add_row(target, policy, *row)
    return table


def _ran(results: list[Result]) -> bool:
    return any(result.verdict.status != "skipped" for result in results)


def _cell(results: list[Result]) -> Text:
    if not results:
        return Text("")
    worst = min(results, key=lambda result: WORST_FIRST.index(result.verdict.status))
    symbol, style = STYLES[worst.verdict.status]
    same = [result for result in results if result.verdict.status == worst.verdict.status]
    if worst.verdict.status in ("skipped", "unknown"):
        return Text(symbol, style=style)
    acked = sum(result.verdict.acked for result in same)
    lost = sum(result.verdict.lost for result in same)
    return Text(f"{symbol} {lost}/{acked}" if lost else f"{symbol} {acked}", style=style)


def _figure(result: Result) -> str:
    verdict = result.verdict
    if verdict.status in ("skipped", "unknown"):
        return verdict.reason or ""
    return verdict.account


def _violations(console: Console, results: Results) -> None:
    for result in results.results:
        if result.verdict.status != "violated":
            continue
        console.print(Text(f"\n✗ {_short(result.scenario)}", style="bold red"))
        for anomaly in result.verdict.anomalies:
            console.print(f"  {anomaly.told}", highlight=False, markup=False)
        if result.reproduced is not None:
            seen, times = result.reproduced
            console.print(f"  seen again in {seen} of {times} further runs", highlight=False)
        if result.smallest is not None:
            size = result.smallest
            where = "" if WORKLOADS[size.workload].sessions else " on one session"
            console.print(
                f"  still shown by {size.writers} writer(s) with {size.ops_max} operations each{where}",
                highlight=False,
            )
        replay = results.replay_of(result)
        if replay is not None:
            # Not wrapped: it is to be copied in one piece, however long it is.
            console.print(f"  {replay}", style="cyan", highlight=False, markup=False, soft_wrap=True)


def _exposed(console: Console, results: Results) -> None:
    groups: dict[str, list[Result]] = {}
    for result in results.results:
        if result.verdict.status == "exposed":
            groups.setdefault(result.verdict.reason or "", []).append(result)
    for reason, group in groups.items():
        console.print(Text(f"\n◌ {reason} [{_listed(group)}]", style="yellow"))


def _losses(console: Console, results: Results) -> None:
    lost = [result for result in results.results if result.verdict.status == "documented-loss"]
    if lost:
        console.print(Text("\nLost as documented:", style="yellow"))
    for result in lost:
        verdict = result.verdict
        back_s = verdict.loss_window_s
        window = "" if back_s is None else f", back to {back_s:.2f} s before the fault"
        seen = ", ".join(f"{one.name} ({one.voice})" for one in verdict.anomalies)
        text = f"  {_short(result.scenario)}: {verdict.account}, {seen}{window}. Promise: {verdict.promise}"
        console.print(text, highlight=False, markup=False)


def _left_out(console: Console, results: Results) -> None:
    reasons: dict[tuple[Status, str], list[Result]] = {}
    for result in results.results:
        if result.verdict.status in ("skipped", "unknown"):
            reasons.setdefault(
                (result.verdict.status, result.verdict.reason or "no reason given"), []
            ).append(result)
    for (status, reason), group in reasons.items():
        console.print(
            f"{status} ({len(group)}): {reason} [{_listed(group)}]",
            style="dim",
            highlight=False,
            markup=False,
        )


def _notes(console: Console, results: Results) -> None:
    """What no verdict says: operations that hang, processes that ended by themselves. A loss has its own sentence."""
    groups: dict[str, list[Result]] = {}
    for result in results.results:
        if result.verdict.status in ("unknown", "held"):
            for note in result.notes:
                groups.setdefault(note, []).append(result)
    for note, group in groups.items():
        console.print(f"note: {note} [{_listed(group)}]", style="dim", highlight=False, markup=False)


def _listed(group: list[Result]) -> str:
    names = sorted({f"{result.scenario.target} {result.scenario.fault}" for result in group})
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
