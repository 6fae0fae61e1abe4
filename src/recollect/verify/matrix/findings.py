"""Findings: violated cells grouped by their cause, so that one bug is reported once.

Cells without a fault come first: a bug that shows there is present in every cell, under whatever name a fault gives it.
Cells that need a fault are one finding if they share the name of an anomaly. Two bugs may have the same name: they are
told apart if what the one needs is missing from the other's cells (`_differ`, `_explained`). Numbers go by importance:
number 1 should be fixed first. The terminal prints it last, where it is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path

import msgspec

from recollect.verify.judging.checkers import CHECKERS
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.history import History, HistoryError
from recollect.verify.judging.steps import StepTaken, steps_of
from recollect.verify.judging.verdict import Anomaly, WitnessEvents
from recollect.verify.matrix.rates import Rate, rate_of
from recollect.verify.matrix.results import Result, Results, replay_command
from recollect.verify.matrix.selection import DEFAULT_WORKLOADS
from recollect.verify.running.faults.process import ONE_WRITER
from recollect.verify.running.scenario import Scenario

NO_FAULT = frozenset({"none", "concurrent-writers"})
"""Faults that break nothing."""

FAMILIES: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "lost-update",
            "dropped",
            "trimmed",
            "silent-reset",
            "hidden",
            "torn-turn",
            "lost-tail",
            "hole",
            "expired-early",
        }
    ),
    frozenset({"stale-read", "own-write-missing", "non-monotonic-read", "fractured-read"}),
    frozenset({"duplicate", "phantom", "dirty-read", "resurrected", "never-expired"}),
    frozenset({"corrupted", "unreadable", "cross-session-leak"}),
)
"""Names that the same bug may get, depending on when one looks."""


LATE = frozenset({"stale-read", "own-write-missing", "non-monotonic-read"})
"""What reads show when messages are not there yet, or no longer."""

LOST = frozenset({"lost-update", "dropped", "trimmed"})
"""Acknowledged messages that are gone without a fault."""

TIME = frozenset({"clock-back", "clock-frozen", "clock-forward", "ttl-drift"})
"""Faults that change nothing but the time: a dead engine or a cut connection is not what caused their findings."""

OF_THE_APP = frozenset({"kill-app", "kill-app-at-line", "cancel"})
"""Faults that end what the store is doing, and leave the engine alone."""

BY_VOLUME = frozenset({"trimmed", "hidden", "unreadable", "silent-reset"})
"""Anomalies that may simply need many messages, which several writers reach sooner than one. These names tell no two
bugs apart."""

LONG = "trimmed"
"""The workload that writes on in a session that is long already."""

FEW = 0.25
"""The share of cells with separated writers in which a bug may show and still count as needing a shared session. A race
that needs none shows in more of them."""
FEW_OF_LEAST = 4


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One bug: its name, what it did in the smallest run that shows it, and where else it was seen."""

    number: int
    target: str
    name: str
    silent: bool
    sentence: str
    names: tuple[str, ...]
    """Every name its cells give it; the first is `name`."""
    cells: tuple[int, ...]
    """Places in `Results.results`, the clearest first."""
    hides: tuple[int, ...] = ()
    """Cells that did not run, or could show nothing else, because of it."""
    confirmed: tuple[int, int] | None = None
    smallest: Scenario
    shrunk: str
    """How far the run was made smaller, in words."""
    steps: tuple[StepTaken, ...] = ()
    folder: str = ""
    """The folder of the smallest run, for `recollect replay`."""

    @property
    def replay(self) -> str | None:
        return replay_command(self.folder) if self.folder else None

    @property
    def confirmation(self) -> str | None:
        return None if self.confirmed is None else "{} of {}".format(*self.confirmed)


def findings(results: Results) -> tuple[Finding, ...]:
    """The bugs of a run, the most important first."""
    groups = [
        group
        for target in dict.fromkeys(result.scenario.target for result in results.results)
        for group in _groups(results, target)
    ]
    groups.sort(key=lambda group: _importance(results, group))
    return tuple(_finding(results, number, group) for number, group in enumerate(groups, 1))


def rate_of_finding(finding: Finding, results: Results) -> Rate | None:
    """How often its cells showed it, if the run was repeated."""
    if results.repeated is None:
        return None
    cells = {results.results[place].scenario.name for place in finding.cells}
    return rate_of(results.repeated, cells, finding.names)


def renumbered(results: Results) -> Results:
    """Updates the cells that a finding hides: they name it by its final number."""
    number_of = {place: finding.number for finding in findings(results) for place in finding.hides}
    return msgspec.structs.replace(
        results,
        results=tuple(
            _hidden_by(result, number_of[place]) if place in number_of else result
            for place, result in enumerate(results.results)
        ),
    )


def _hidden_by(result: Result, number: int) -> Result:
    verdict = msgspec.structs.replace(result.verdict, reason=f"hidden by finding {number}")
    return msgspec.structs.replace(result, verdict=verdict)


class _Cause(msgspec.Struct):
    """Cells with the same cause. `names` are the anomalies that it explains."""

    cells: list[int]
    names: set[str]


def broken_of(result: Result) -> tuple[Anomaly, ...]:
    """The anomalies of a violated cell. A saved result may have nothing but its status; then that is the name."""
    if result.verdict.status != "violated" or result.verdict.broken:
        return result.verdict.broken
    return (Anomaly("violated", 1, True, WitnessEvents(), result.verdict.reason or "no reason was saved"),)


def meanings() -> dict[str, str]:
    """What each anomaly means: the first sentence of its checker's docstring."""
    return {checker.NAME: (checker.__doc__ or "").partition("\n")[0] for checker in CHECKERS}


def _groups(results: Results, target: str) -> list[_Cause]:
    violated = {
        place: {anomaly.name for anomaly in broken_of(result)}
        for place, result in enumerate(results.results)
        if result.verdict.status == "violated" and result.scenario.target == target
    }
    bare = {place: names for place, names in violated.items() if _needs_no_fault(results.results[place])}
    same = (_races(results, bare), _lost_together(results, bare))
    groups = _joined(bare, same, differ=lambda one, other: _differ(results, one, other))
    groups = _without_late_orders(results, groups)
    rest: dict[int, set[str]] = {}
    for place, names in violated.items():
        if place in bare:
            continue
        if (known := _explained(results, groups, place, names)) is not None:
            known.cells.append(place)
        else:
            rest[place] = names - _names_there(results, groups, place, names) or names
    return groups + _joined(rest, differ=lambda one, other: _differ(results, one, other))


def _without_late_orders(results: Results, groups: list[_Cause]) -> list[_Cause]:
    """If a single writer is acknowledged before its message is there, messages also arrive out of order: that is not a
    second bug."""
    late = [
        group
        for group in groups
        if group.names & LATE and any(is_alone(results.results[cell]) for cell in group.cells)
    ]
    kept = []
    for group in groups:
        of_orders = all(_is_of_orders(results.results[cell]) for cell in group.cells)
        if late and group not in late and of_orders and group.names <= LATE | {"reorder"}:
            late[0].cells += group.cells
            late[0].names |= group.names
        else:
            kept.append(group)
    return kept


def _names_there(results: Results, groups: list[_Cause], place: int, names: set[str]) -> set[str]:
    """The names of the bugs that need no fault and may show in this cell too."""
    there = [group for group in groups if not _is_avoided(results, group, place, names)]
    return {name for group in there for name in group.names}


def _differ(results: Results, one: int, other: int) -> bool:
    """Whether two cells that share a name cannot show the same bug, because neither has what the other needs.

    With a fault: one of them changed only the time, the other did not. Without: one has a single writer and a certain
    use of memory, the other several writers and plain texts, and one writer with plain texts was fine.
    """
    first, second = results.results[one], results.results[other]
    if not _needs_no_fault(first):
        return (first.scenario.fault in TIME) != (second.scenario.fault in TIME)
    if not _fine_alone(results, first.scenario.target):
        return False
    return {_takes(first), _takes(second)} == {"use", "writers"}


def _names_of(result: Result) -> set[str]:
    return {anomaly.name for anomaly in broken_of(result)}


def _takes(result: Result) -> str:
    """What a cell without a fault adds to one writer with plain texts: writers or a use; empty if both or neither.

    Longer sessions are no use of their own: several writers come to as many messages."""
    plain = result.scenario.workload in (*DEFAULT_WORKLOADS, INTERLEAVINGS)
    writers = _writers(result) > 1
    if result.scenario.workload == LONG:
        return ""
    return "writers" if plain and writers else "use" if not plain and not writers else ""


def _fine_alone(results: Results, target: str) -> bool:
    """Whether one writer with plain texts was tried, and held."""
    return any(
        _needs_no_fault(result)
        and result.scenario.target == target
        and result.verdict.status == "held"
        and result.scenario.workload in DEFAULT_WORKLOADS
        and _writers(result) == 1
        for result in results.results
    )


def _races(results: Results, bare: dict[int, set[str]]) -> set[int]:
    """Cells that show one race: those where an order of events shows it, and those where several writers hit it by
    chance. Which name of its family a loss gets depends on which writer is seen to have overwritten it."""
    tried = {place for place in bare if _is_of_orders(results.results[place])}
    names = _family(
        {name for place in tried if results.results[place].scenario.writers > 1 for name in bare[place]}
    )
    return {
        place
        for place, own in bare.items()
        if own & names and (place in tried or _writers(results.results[place]) > 1)
    }


def _lost_together(results: Results, bare: dict[int, set[str]]) -> set[int]:
    """Cells in which several writers with plain texts lose messages: whether another's write was under way meanwhile,
    and the loss is called a lost update, is chance."""
    return {
        place
        for place, own in bare.items()
        if own & {"lost-update", "dropped"} and _takes(results.results[place]) == "writers"
    }


def _is_of_orders(result: Result) -> bool:
    return result.scenario.workload == INTERLEAVINGS


def _needs_no_fault(result: Result) -> bool:
    return result.scenario.fault in NO_FAULT


def _explained(results: Results, groups: list[_Cause], place: int, names: set[str]) -> _Cause | None:
    """A bug that needs no fault and shows in this cell too."""
    fault = results.results[place].scenario.fault
    for group in groups:
        everywhere = _is_everywhere(results, group)
        if not everywhere and _is_avoided(results, group, place, names):
            continue
        if names <= (_consequences(group.names, names, fault) if everywhere else group.names):
            return group
        # Where writers get in each other's way, whatever else the cell shows says nothing new.
        if not everywhere and not results.results[place].scenario.apart and names & group.names:
            return group
    return None


def _is_everywhere(results: Results, group: _Cause) -> bool:
    """Whether nothing avoids it: one writer with plain texts shows it, or several writers do, also where they were kept
    apart, because they meet in the engine (a lock of the whole file). A fault then only gives it another name."""
    own = [results.results[cell] for cell in group.cells]
    if any(map(is_alone, own)):
        return True
    apart = _shows_apart(results, group, own[0].scenario.target)
    enough = len(apart) >= FEW_OF_LEAST and sum(apart) > FEW * len(apart)
    return enough and set(map(_takes, filter(_needs_no_fault, own))) == {"writers"}


def _is_avoided(results: Results, group: _Cause, place: int, names: set[str]) -> bool:
    """Whether this cell lacks what the group's bug needs, so that it shows another bug of that name."""
    if names & BY_VOLUME:
        return False
    scenario = results.results[place].scenario
    bare = [result for cell in group.cells if _needs_no_fault(result := results.results[cell])]
    takes = set(map(_takes, bare))
    if takes == {"use"}:
        return scenario.workload not in {result.scenario.workload for result in bare}
    return takes == {"writers"} and scenario.apart and _shows_in_few(results, group, scenario.target)


def _shows_in_few(results: Results, group: _Cause, target: str) -> bool:
    """Whether keeping the writers apart kept the bug away."""
    told = _shows_apart(results, group, target)
    return len(told) >= FEW_OF_LEAST and sum(told) <= FEW * len(told)


def _shows_apart(results: Results, group: _Cause, target: str) -> list[bool]:
    """For each cell in which the writers were kept apart, whether it shows the bug under a name that it has already."""
    return [
        bool(_names_of(result) & group.names)
        for result in results.results
        if result.scenario.apart
        and result.scenario.target == target
        and not _needs_no_fault(result)
        and result.verdict.status not in ("skipped", "unknown")
    ]


def is_alone(result: Result) -> bool:
    """Whether one writer with plain texts was enough to show it."""
    workload = result.scenario.workload
    return _needs_no_fault(result) and _writers(result) == 1 and workload in DEFAULT_WORKLOADS


def _writers(result: Result) -> int:
    scenario = result.scenario if result.smallest_run is None else result.smallest_run.scenario
    return 1 if scenario.variant == ONE_WRITER else scenario.writers


def _consequences(names: set[str], shown: set[str], fault: str) -> set[str]:
    """Names that a cell with a fault may give to a bug that shows everywhere.

    What a store loses by itself is missing from reads, and there again where a write was repeated. What is late, or for
    a moment nowhere, arrives in another order, and is lost for good if the process dies meanwhile; if the engine does,
    only a hole is certain not to be the engine's own loss, which is the end. Where reads show old states, what they
    lack proves nothing: it may have been gone for long, or still be there. A changed clock has its own way with order:
    it is only the same bug if something is late there too.
    """
    more = set(LATE) if names & LOST else set()
    if names & LATE:
        more |= {"reorder", "hole"} if fault not in TIME or shown & LATE else set()
        more |= _family(set(LOST)) if fault in OF_THE_APP or shown & LATE else set()
    return _family(names) | more


def _family(names: set[str]) -> set[str]:
    return names.union(*(family for family in FAMILIES if family & names))


def _joined(
    cells: dict[int, set[str]], same: Iterable[Set[int]] = (), *, differ: Callable[[int, int], bool]
) -> list[_Cause]:
    """Groups of cells: those that share a name, directly or through others, unless they `differ`; and all that are in
    one of `same`."""
    groups: list[_Cause] = []
    for place, names in cells.items():
        joined = _Cause([place], set(names))
        for group in [
            group
            for group in groups
            if any(cells[other] & names and not differ(other, place) for other in group.cells)
            or any(place in one and not one.isdisjoint(group.cells) for one in same)
        ]:
            joined = _Cause(group.cells + joined.cells, group.names | joined.names)
            groups.remove(group)
        groups.append(joined)
    return groups


def _importance(results: Results, group: _Cause) -> tuple[bool, bool, int]:
    """Bugs that need no fault come first, then silent ones, then those that show in many cells."""
    members = [results.results[place] for place in group.cells]
    bare = any(map(_needs_no_fault, members))
    silent = any(anomaly.silent for member in members for anomaly in broken_of(member))
    return not bare, not silent, -len(members)


def _finding(results: Results, number: int, group: _Cause) -> Finding:
    alone = any(is_alone(results.results[place]) for place in group.cells)
    places = sorted(group.cells, key=lambda place: (_clarity(results.results[place], group, alone), place))
    lead = results.results[places[0]]
    anomaly = _named(broken_of(lead), group.names)
    smallest = lead.smallest_run
    told = anomaly if smallest is None else smallest.anomaly
    return Finding(
        number=number,
        target=lead.scenario.target,
        name=told.name,
        silent=told.silent,
        sentence=told.sentence,
        names=_all_names(results, places, group, told.name),
        cells=tuple(places),
        hides=_hidden(results, places),
        confirmed=lead.reproduced,
        smallest=lead.scenario if smallest is None else smallest.scenario,
        shrunk=lead.shrunk,
        steps=_steps(results, lead, anomaly) if smallest is None else smallest.steps,
        folder=results.folder_of(lead) if smallest is None else results.place(smallest.folder),
    )


def _clarity(result: Result, group: _Cause, alone: bool) -> tuple[bool, ...]:
    """The clearest cell comes first: made smaller, run again, without a fault, under a name of its own.

    What one writer alone shows is no question of order."""
    own = not group.names.isdisjoint(anomaly.name for anomaly in broken_of(result))
    return (
        alone and _is_of_orders(result),
        result.smallest_run is None,
        result.reproduced is None,
        "+" in result.scenario.fault,  # what one fault shows alone does not take two
        not _needs_no_fault(result),
        not own,
    )


def _named(broken: Sequence[Anomaly], names: set[str]) -> Anomaly:
    return next((anomaly for anomaly in broken if anomaly.name in names), broken[0])


def _all_names(results: Results, places: Iterable[int], group: _Cause, first: str) -> tuple[str, ...]:
    """The finding's own name, then the others, the most frequent first."""
    counts = Counter(
        anomaly.name
        for place in places
        for anomaly in broken_of(results.results[place])
        if anomaly.name in group.names
    )
    return (first, *(name for name, _ in counts.most_common() if name != first))


def _hidden(results: Results, places: Iterable[int]) -> tuple[int, ...]:
    folders = {results.results[place].folder for place in places} - {""}
    return tuple(place for place, result in enumerate(results.results) if result.hidden_by in folders)


def _steps(results: Results, result: Result, anomaly: Anomaly) -> tuple[StepTaken, ...]:
    """For a run that was not made smaller: the steps around the witness, from its own history."""
    history = results.history_of(result)
    try:
        return () if history is None else steps_of(History(Path(history)), anomaly.first)
    except (OSError, HistoryError):
        return ()
