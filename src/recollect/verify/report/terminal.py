"""The terminal: one table per target, a few lines about what did not hold, and the findings, the most important last.

Everything that a cell has to say is on the HTML page and under `--verbose`; here one bug is reported once, on a screen.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from recollect.printable import counted
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.steps import EVERYONE, shortened
from recollect.verify.judging.verdict import WORST_FIRST, Status
from recollect.verify.matrix.findings import Finding, findings
from recollect.verify.matrix.rates import CONFIDENCE, highest_unseen
from recollect.verify.matrix.results import BUDGET, INTERRUPTED, Result, Results
from recollect.verify.report.finding_text import headline, seen_in
from recollect.verify.report.symbols import STYLES, against, client_of, lost_of, size_of, why_left_out

LEGEND: dict[Status, str] = {
    "held": "held",
    "documented-loss": "documented loss",
    "exposed": "exposed",
    "violated": "violated",
    "unknown": "unknown",
    "skipped": "skipped",
}
NAMED_MAX = 4
STEPS_MAX = 8
"""How many steps of a finding are shown, so that it fits on a screen; the page and `--verbose` have all of them."""
STEPS_LEAST = 4
STEP_LINES_MAX = 14
VERSION_FAULTS = frozenset({"upgrade", "downgrade"})
_NO_NEWS = frozenset({"held", "skipped", "documented-loss"})
COLUMN_LEAST = 16
"""The least width of a process's column, in characters; with less room, the steps go one below the other."""


def show(
    console: Console, results: Results, *, verbose: bool = False, asked_for: Collection[str] = ()
) -> None:
    """The tables, what did not hold, the count, and the findings. `asked_for` are the faults that the user named."""
    found = findings(results)
    numbers = {place: finding.number for finding in reversed(found) for place in finding.cells}
    if _tables(console, results, numbers, verbose):
        _legend(console, results)
        for sentence in results.overridden:
            console.print(sentence, highlight=False, markup=False)
    if verbose:
        _every_violation(console, results)
        _losses(console, results)
        _notes(console, results)
    else:
        _documented(console, results)
    _exposed(console, results)
    _left_out(console, results, verbose, asked_for)
    _count(console, results, found)
    _baseline(console, results)
    _repeated(console, results)
    for finding in reversed(found):
        _finding(console, results, finding, stepwise=verbose or finding.number == 1, verbose=verbose)


# ---- the tables


def _tables(console: Console, results: Results, numbers: dict[int, int], verbose: bool) -> bool:
    """One for each target: faults down, policies across. Rows in which everything held share one line."""
    targets = dict.fromkeys(result.scenario.target for result in results.results)
    shown = False
    for target in targets:
        cells: dict[str, dict[str, list[int]]] = {}
        for place, result in enumerate(results.results):
            if result.scenario.target == target:
                row = cells.setdefault(result.scenario.fault, {})
                row.setdefault(results.column_of(result), []).append(place)
        ran = {
            fault: row
            for fault, row in cells.items()
            if any(_ran(results.results[place]) for places in row.values() for place in places)
        }
        if ran:
            console.print(_title(results, target), highlight=False, markup=False)
            _table(console, results, ran, numbers, verbose)
            shown = True
    return shown


def _title(results: Results, target: str) -> str:
    """The store and its engines. Where other cells ran, the version that an upgrade began with is not one of them."""
    ran = [result for result in results.results if result.scenario.target == target and result.engine_version]
    steady = [result for result in ran if result.scenario.fault not in VERSION_FAULTS]
    engines = dict.fromkeys(
        f"{result.scenario.engine_name} {result.engine_version}" for result in steady or ran
    )
    about = _about(result for result in results.results if result.scenario.target == target)
    return f"{target}{about} on {', '.join(engines)}" if engines else f"{target}{about}"


def _about(mine: Iterable[Result]) -> str:
    """What was released under which version, what it does not claim, and what it was given."""
    told = dict.fromkeys(
        part for result in mine for part in (result.release, *result.traits, result.given) if part
    )
    return f" ({', '.join(told)})" if told else ""


def _table(
    console: Console,
    results: Results,
    rows: dict[str, dict[str, list[int]]],
    numbers: dict[int, int],
    verbose: bool,
) -> None:
    policies = list(dict.fromkeys(policy for row in rows.values() for policy in row))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("  fault", no_wrap=True)
    for policy in policies:
        table.add_column(policy.replace(" ", "\n"), no_wrap=True)
    held: list[str] = []
    apart: list[str] = []
    for fault, row in rows.items():
        if not verbose and all(_held(results, places) for places in row.values()):
            held.append(fault)
        elif not verbose and len(policies) > 1 and (loss := _only_loss(results, row)) is not None:
            apart.append(f"{fault} {loss}")
        elif not verbose and len(policies) > 1 and _only_exposed(results, row):
            continue  # listed below, with its reason
        else:
            table.add_row(
                f"  {fault}", *(_cell(results, row.get(policy, []), numbers) for policy in policies)
            )
    if table.row_count:
        console.print(table)
    if apart:
        text = f"{STYLES['documented-loss'][0]} {', '.join(apart)}"
        console.print(Padding(Text(text, style="yellow"), (0, 0, 0, 2)))
    if held:
        kept = sum(
            results.results[place].verdict.acked
            for name in held
            for row in rows[name].values()
            for place in row
        )
        text = f"  ✓ held, {counted(kept, 'message')}: {', '.join(held)}"
        console.print(Padding(Text(text.strip(), style="green"), (0, 0, 0, 2)))


def _ran(result: Result) -> bool:
    return result.verdict.status != "skipped"


def _held(results: Results, places: Sequence[int]) -> bool:
    statuses = {results.results[place].verdict.status for place in places}
    return statuses <= {"held", "skipped"} and "held" in statuses


def _only_loss(results: Results, row: dict[str, list[int]]) -> str | None:
    """The figures of a row with nothing but documented losses under one policy: it needs no line of its own."""
    there = [results.results[place].verdict for places in row.values() for place in places]
    lost = [verdict for verdict in there if verdict.status == "documented-loss"]
    if len(row) > 1 or not lost or any(verdict.status not in _NO_NEWS for verdict in there):
        return None
    return lost_of(lost)


def _only_exposed(results: Results, row: dict[str, list[int]]) -> bool:
    there = {results.results[place].verdict.status for places in row.values() for place in places}
    return len(row) == 1 and "exposed" in there and there <= {"exposed", "held", "skipped"}


def _cell(results: Results, places: Sequence[int], numbers: dict[int, int]) -> Text:
    if not places:
        return Text("")
    members = [results.results[place] for place in places]
    worst = min((member.verdict.status for member in members), key=WORST_FIRST.index)
    symbol, style = STYLES[worst]
    same = [member.verdict for member in members if member.verdict.status == worst]
    if worst in ("skipped", "unknown"):
        return Text(symbol, style=style)
    bugs = sorted({numbers[place] for place in places if place in numbers})
    return Text(f"{symbol} {lost_of(same)}" + "".join(f" #{bug}" for bug in bugs), style=style)


def _legend(console: Console, results: Results) -> None:
    there = {result.verdict.status for result in results.results}
    words = [f"{STYLES[status][0]} {LEGEND[status]}" for status in WORST_FIRST if status in there]
    several = results.repeated is not None and results.repeated.rounds > 1
    rounds = "; the first round, and later runs that showed something new" * several
    console.print(Text(f"{'  '.join(words)}  (lost/acknowledged{rounds})", style="dim"))


# ---- what did not hold


def _documented(console: Console, results: Results) -> None:
    """Losses that the engine documents, in one line; the figures are in the table, the promises under `--verbose`."""
    lost = [result for result in results.results if result.verdict.status == "documented-loss"]
    if lost:
        names = dict.fromkeys(anomaly.name for result in lost for anomaly in result.verdict.anomalies)
        text = f"◐ lost as documented in {counted(len(lost), 'cell')}: {', '.join(names)}"
        console.print(Text(text, style="yellow"))


def _exposed(console: Console, results: Results) -> None:
    groups: dict[str, list[Result]] = {}
    for result in results.results:
        if result.verdict.status == "exposed":
            groups.setdefault(result.verdict.reason or "", []).append(result)
    for reason, group in groups.items():
        console.print(Text(f"◌ exposed: {reason} [{_listed(results, group)}]", style="yellow"))


def _left_out(console: Console, results: Results, verbose: bool, asked_for: Collection[str]) -> None:
    """Every `unknown` says why, and so does a target on which a fault that was asked for never ran; the other reasons
    for skipped cells are under `--verbose`, and that is said. The figures are parts of those in the count."""
    ran = {key for result in results.results if _ran(result) for key in _asked_as(result)}
    missed = {
        (target, fault)
        for result in results.results
        for target, fault in _asked_as(result)
        if fault in asked_for and (target, fault) not in ran
    }
    statuses: tuple[Status, ...] = ("skipped", "unknown")
    unsaid = 0
    for status in statuses:
        for reason, group in results.reasons(status).items():
            orders = any(result.scenario.workload == INTERLEAVINGS for result in group)
            missing = not ran or any(key in missed for result in group for key in _asked_as(result))
            if verbose or missing or orders or status == "unknown" or _was_cut_short(reason):
                said = f"{why_left_out(reason)} [{_listed(results, group)}]"
                _part(console, results, status, len(group), said)
            else:
                unsaid += len(group)
    if unsaid:
        again = f"`recollect report {shlex.quote(results.folder)} -v`" if results.folder else "-v"
        _part(console, results, "skipped", unsaid, f"{again} says why")


def _part(console: Console, results: Results, status: Status, count: int, said: str) -> None:
    every = results.counts[status]
    part = f"{count} of {every}" if count < every else f"{every}"
    console.print(f"{status} ({part}): {said}", style="dim", highlight=False, markup=False)


def _asked_as(result: Result) -> list[tuple[str, str]]:
    """The target, and each way in which `--fault` names the cell's fault."""
    scenario = result.scenario
    return [(scenario.target, scenario.fault), (scenario.target, f"{scenario.fault}@{scenario.variant}")]


def _was_cut_short(reason: str) -> bool:
    """Whether a cell was skipped although it could have run: that must not be overlooked."""
    return reason in (BUDGET, INTERRUPTED) or reason.startswith(("--fail-fast", "hidden by"))


def _count(console: Console, results: Results, found: Sequence[Finding]) -> None:
    ran = [result for result in results.results if result.began]
    operations = sum(result.operations for result in ran)
    counts = ", ".join(f"{count} {status}" for status, count in results.counts.items())
    if not counts:
        counts = (
            f"shard {results.shard} has no cells, the other shards have them all"
            if results.shard
            else "no workload fits what the target can do"
        )
    seeds = f"seed{'s'[: len(results.seeds) > 1]} {', '.join(map(str, results.seeds))}"
    bugs = "" if not found else f"; {len(found)} finding{'s'[: len(found) > 1]}"
    every = len(results.results)
    cells = counted(every, "cell") if len(ran) == every else f"{len(ran)} of {counted(every, 'cell')}"
    console.print(
        f"{cells} ran, {counted(operations, 'operation')} in {results.elapsed_s:.1f} s: "
        f"{counts} ({seeds}){bugs}",
        highlight=False,
    )
    if results.ended_before_faults:
        text = (
            "the time was over before all cells without a fault had run, and before any fault: what held proves "
            "nothing yet; give a larger --budget"
        )
        console.print(Text(text, style="yellow"))


def _baseline(console: Console, results: Results) -> None:
    """Compared with the earlier run: what is new fails the run, the rest is only reported."""
    if (known := results.baseline) is None:
        return
    console.print(f"against the baseline: {against(known)}", highlight=False, markup=False)


def _repeated(console: Console, results: Results) -> None:
    """How many rounds, and what they prove about the cells that showed nothing."""
    if (repeated := results.repeated) is None:
        return
    first, last = repeated.seeds
    console.print(
        f"{counted(repeated.rounds, 'round')}, {counted(repeated.runs, 'run')} (seeds {first} to {last})",
        highlight=False,
    )
    clean = [cell.runs for cell in repeated.cells if cell.runs and not cell.shown]
    if clean:
        least = min(clean)
        console.print(
            f"{counted(len(clean), 'cell')} showed no violation in at least {counted(least, 'run')} each: what they "
            f"did not show happens in less than {100 * highest_unseen(least):.1f} % of runs like these, with "
            f"{100 * CONFIDENCE:.0f} % confidence",
            highlight=False,
        )


# ---- a finding


def _finding(console: Console, results: Results, finding: Finding, *, stepwise: bool, verbose: bool) -> None:
    known = results.baseline is not None and finding.number in results.baseline.still
    console.print()
    style = "yellow" if known else "bold red"
    text = f"✗ Finding {finding.number}: {headline(finding)}{', known' if known else ''}"
    console.print(Text(text, style=style))
    console.print(Padding(Text(finding.sentence), (0, 0, 0, 2)))
    if stepwise and finding.steps:
        shown = finding if verbose else _short(console, finding)
        console.print(Padding(_columns(shown, console.width - 4), (1, 0, 0, 4)))
    console.print(Padding(Text(size_of(finding)), (0, 0, 0, 2)))
    console.print(Padding(Text(seen_in(finding, results)), (0, 0, 0, 2)))
    if finding.replay is not None:
        # Not wrapped, however long it is: it is meant to be copied in one piece.
        console.print(f"  {finding.replay}", style="cyan", highlight=False, markup=False, soft_wrap=True)


def _short(console: Console, finding: Finding) -> Finding:
    """With as many steps as have room: in narrow columns, a step takes several lines."""
    if finding.smallest.workload == INTERLEAVINGS:  # an order of events only makes sense from its beginning
        return finding
    width = console.width - 4
    for most in range(STEPS_MAX, STEPS_LEAST - 1, -1):
        shown = msgspec.structs.replace(finding, steps=shortened(finding.steps, most))
        lines = console.render_lines(_columns(shown, width), console.options.update(width=width))
        if len(lines) <= STEP_LINES_MAX:
            break
    return shown


def _columns(finding: Finding, width: int) -> Table:
    """A column for each process, if they fit side by side."""
    steps = finding.steps
    processes = sorted({step.process for step in steps if step.process != EVERYONE})
    outside = any(step.is_outside for step in steps)
    names = [client_of(finding, process) for process in processes] + ["engine"] * outside
    side_by_side = processes and (width - 3) // len(names) >= COLUMN_LEAST
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=bool(side_by_side)
    )
    table.add_column("", justify="right", style="dim", no_wrap=True)
    for name in names if side_by_side else ("",):
        table.add_column(name)
    number = 0
    for step in steps:
        style = "bold red" if step.told else "dim" if step.process == EVERYONE else ""
        number += not step.left_out
        shown = "" if step.left_out else str(number)
        if not side_by_side:
            who = "" if step.process == EVERYONE else f"{client_of(finding, step.process)} "
            table.add_row(shown, Text(f"{who}{step.text}", style=style))
        else:
            place = 0 if step.left_out else [*processes, EVERYONE].index(step.process)
            row = [Text("")] * len(names)
            row[place] = Text(step.text, style=style)
            table.add_row(shown, *row)
    return table


# ---- under --verbose


def _every_violation(console: Console, results: Results) -> None:
    for result in results.results:
        if result.verdict.status != "violated":
            continue
        console.print(Text(f"\n✗ {result.scenario.title}", style="bold red"))
        for anomaly in result.verdict.anomalies:
            console.print(f"  {anomaly.told}", highlight=False, markup=False)
        if result.reproduced is not None:
            seen, times = result.reproduced
            console.print(f"  seen again in {seen} of {times} further runs", highlight=False)
        replay = results.replay_of(result)
        if replay is not None:
            console.print(f"  {replay}", style="cyan", highlight=False, markup=False, soft_wrap=True)


def _losses(console: Console, results: Results) -> None:
    lost = [result for result in results.results if result.verdict.status == "documented-loss"]
    if lost:
        console.print(Text("\nLost as documented:", style="yellow"))
    for result in lost:
        verdict = result.verdict
        seen = ", ".join(f"{one.name} ({one.voice})" for one in verdict.anomalies)
        text = (
            f"  {result.scenario.title}: {verdict.account}, {seen}{verdict.reach}. Promise: {verdict.promise}"
        )
        console.print(text, highlight=False, markup=False)


def _notes(console: Console, results: Results) -> None:
    """What no verdict says: operations that hung, processes that ended by themselves. A loss has its own sentence."""
    groups: dict[str, list[Result]] = {}
    for result in results.results:
        if result.verdict.status in ("unknown", "held"):
            for note in result.notes:
                groups.setdefault(note, []).append(result)
    for note, group in groups.items():
        console.print(f"note: {note} [{_listed(results, group)}]", style="dim", highlight=False, markup=False)


def _listed(results: Results, group: list[Result]) -> str:
    """The cells' faults, with their targets if the run has several."""
    is_alone = len({result.scenario.target for result in results.results}) == 1
    names = sorted({("" if is_alone else f"{each.scenario.target} ") + each.scenario.fault for each in group})
    return ", ".join(names[:NAMED_MAX]) + (
        f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    )
