"""Planted races are found under their names, and stores without one are never accused.

A sample of each kind by default; `RECOLLECT_FULL_INTERLEAVINGS=1` takes all, and so does bench/interleavings.py.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from recollect.verify.explore.interleavings.explorer import Explorer
from recollect.verify.explore.interleavings.program import ClientsProgram
from recollect.verify.explore.interleavings.results import CONFIRMATIONS, InterleavingsAsked
from recollect.verify.explore.interleavings.search import Choice, Redundant, Replay, started
from recollect.verify.explore.interleavings.words import explore_interleavings
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from tests.interleavings.cells import CORRECT, HERE, PLANTED, Cell

FOUND_WITHIN_S = 60.0
"""A deadline for a machine with other work; what they really take is measured by bench/interleavings.py."""


SMALL = ("a | a", "r | a r")

IS_FULL = os.environ.get("RECOLLECT_FULL_INTERLEAVINGS") == "1"


def sampled(cells: Sequence[Cell], each: int) -> list[Cell]:
    """The first few for each engine and way of exploring."""
    kinds: Counter[tuple[str, str, bool]] = Counter()
    taken = []
    for cell in cells:
        kind = (cell.engine, cell.how, cell.cancel)
        kinds[kind] += 1
        if IS_FULL or kinds[kind] <= each:
            taken.append(cell)
    return taken


@pytest.mark.parametrize("cell", sampled(PLANTED, 2), ids=lambda cell: cell.title)
def test_a_race_is_found_and_replayed(cell: Cell, tmp_path: Path) -> None:
    found = cell.explore(tmp_path, FOUND_WITHIN_S).found
    failure = found.failure
    assert failure is not None, (found.status, found.reason, found.coverage)
    assert set(failure.names) & set(cell.names), failure.anomalies
    assert failure.confirmed == CONFIRMATIONS
    assert found.status == "violated"
    assert failure.preemptions <= 2
    history = History(Path(failure.history))
    assert (history.header.program, history.header.schedule) == (failure.programs, failure.schedules)
    assert {anomaly.name for anomaly in analyze(history).anomalies} == set(failure.names)


def test_a_store_that_a_rehearsal_spoils_is_rehearsed_all_the_same(tmp_path: Path) -> None:
    """Its clients that take turns raise, so that rehearsal is left out: the others must not be, or what is found on
    used clients could not be seen again on new ones."""
    (cell,) = (each for each in PLANTED if each.title == "sqlite_tasks:LockedTransaction-processes")
    (explored,) = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("a | a",)).found.programs
    assert explored.failure is not None
    assert (explored.failure.names, explored.failure.confirmed) == (("raised",), CONFIRMATIONS)
    assert explored.doubt is None


def test_a_connection_that_we_end_accuses_nobody(tmp_path: Path) -> None:
    """Before a store is used again, idle connections may be ended. A driver that never tries again would raise then."""
    (cell,) = (each for each in CORRECT if each.store == "redis_used:FinishedAnyway")
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("a a r",)).found
    assert found.failure is None, found.failure
    assert found.trouble is None


def test_false_is_an_answer_and_not_an_error(tmp_path: Path) -> None:
    """Such as: this turn was stored before."""
    (cell,) = (each for each in CORRECT if each.store == "redis_tasks:SaysWhetherItWasNew")
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("i | i",)).found
    assert found.failure is None, found.failure
    assert found.trouble is None


@pytest.mark.parametrize("cell", sampled(CORRECT, 1), ids=lambda cell: cell.title)
def test_a_store_without_a_race_is_not_accused(cell: Cell, tmp_path: Path) -> None:
    """Every distinguishable order of two small programs. Threads, and callers that give up, are too many for that: they
    get a few seconds, and so does everything in the full set."""
    to_the_end = cell.how != "threads" and not cell.cancel and not IS_FULL
    seconds, programs = (FOUND_WITHIN_S, SMALL) if to_the_end else (cell.seconds, ())
    found = cell.explore(tmp_path, seconds, programs=programs).found
    assert found.failure is None, found.failure
    assert found.trouble is None
    assert found.unseen is None
    assert sum(one.diverged for one in found.programs) == 0
    assert found.programs[0].judged
    assert all(one.exhausted for one in found.programs) or not to_the_end


@pytest.mark.parametrize(
    ("store", "twin"), [("AsksBeforeItStops", "WritesForAll"), ("LockAfterAYield", "OneLockAfterAYield")]
)
def test_others_go_on_while_a_task_asks_or_lets_them_go_first(store: str, twin: str, tmp_path: Path) -> None:
    (racy,) = (each for each in PLANTED if each.store == f"redis_turns:{store}")
    failure = racy.explore(tmp_path, FOUND_WITHIN_S, programs=("a | a",)).found.failure
    assert failure is not None
    assert set(failure.names) & set(racy.names), failure.anomalies
    (right,) = (each for each in CORRECT if each.store == f"redis_turns:{twin}")
    found = right.explore(tmp_path, FOUND_WITHIN_S, programs=("a | a",)).found
    assert found.failure is None
    assert found.programs[0].exhausted


def test_a_store_that_yields_by_the_clock_goes_the_same_way_each_time(tmp_path: Path) -> None:
    (cell,) = (each for each in CORRECT if each.store == "redis_turns:YieldsNowAndThen")
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("a | a | a",)).found
    assert found.failure is None
    assert (found.programs[0].diverged, found.programs[0].repeated) == (0, 0)
    assert found.programs[0].judged


def test_a_race_that_needs_an_earlier_message_is_found_with_one(tmp_path: Path) -> None:
    (cell,) = (each for each in PLANTED if each.store == "redis_tasks:CreatedOnce")
    failure = cell.explore(tmp_path, FOUND_WITHIN_S).found.failure
    assert failure is not None
    assert failure.program == "1+ a | a"
    assert set(failure.names) & set(cell.names), failure.anomalies


@pytest.mark.parametrize("how", ["processes", "threads"])
def test_what_leaves_a_declared_window_is_not_lost(how: str, tmp_path: Path) -> None:
    """`9+ a | a` writes one message more than the store says it keeps."""
    (right,) = (each for each in CORRECT if (each.store, each.how) == ("windows:AsDeclared", how))
    (wrong,) = (each for each in PLANTED if (each.store, each.how) == ("windows:OneFewer", how))
    held = right.explore(tmp_path, right.seconds, programs=("9+ a | a",)).found
    assert held.failure is None, held.failure
    assert held.programs[0].judged
    failure = wrong.explore(tmp_path, FOUND_WITHIN_S, programs=("9+ a | a",)).found.failure
    assert failure is not None
    assert set(failure.names) & set(wrong.names), failure.anomalies


@pytest.mark.parametrize("how", ["tasks", "threads"])
def test_a_store_that_counts_by_itself_is_new_for_each_schedule(how: str, tmp_path: Path) -> None:
    """Its tenth append comes in the middle of the schedule only if nothing was appended before."""
    name = "with_threads:CompactsEveryTenth" if how == "threads" else "redis_tasks:CompactsEveryTenthOfItsOwn"
    (cell,) = (each for each in PLANTED if (each.store, each.how) == (name, how))
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("a | a", "9+ a | a")).found
    assert found.failure is not None, (found.status, found.reason, found.coverage)
    assert set(found.failure.names) & set(cell.names), found.failure.anomalies
    assert (found.failure.program, found.failure.confirmed) == ("9+ a | a", CONFIRMATIONS)


@pytest.mark.parametrize("how", ["tasks", "processes"])
def test_an_engine_without_our_scripts_is_no_other_order(how: str, tmp_path: Path) -> None:
    """Only the first run, which counts for nothing, finds the engine without the scripts."""
    (cell,) = (each for each in CORRECT if (each.store, each.how, each.cancel) == ("redis", how, False))
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("2+ p | r",)).found
    assert found.status == "held", found.reason
    assert sum(one.repeated + one.diverged for one in found.programs) == 0


class CutShort(Replay):
    """Ends the run after the last choice of its string, as one that turns out to be the same as another."""

    def pick(self, enabled: Sequence[Choice], last: str) -> int:
        if len(enabled) > 1 and not self._codes:
            raise Redundant
        return super().pick(enabled, last)


class Begins(Replay):
    """Keeps what could come first."""

    first: tuple[str, ...] = ()

    def pick(self, enabled: Sequence[Choice], last: str) -> int:
        self.first = self.first or tuple(choice.key for choice in enabled)
        return super().pick(enabled, last)


def test_a_request_that_nobody_waits_for_any_more_stays_in_its_schedule(tmp_path: Path) -> None:
    """A run that is cut short after a timeout leaves one on its way: A has asked again, and both have their answers."""
    asked = InterleavingsAsked(
        target="tests.interleavings.planted.redis_tasks:ReadsTwice",
        engine="redis",
        how="tasks",
        folder=str(tmp_path),
        path=(str(HERE),),
    )
    program, after = ClientsProgram.parse("r | r r"), Begins("")
    with closing(Explorer(asked)) as explorer:
        world = explorer._world
        world.run(program, started(Replay("")))
        with pytest.raises(Redundant):
            world.run(program, started(CutShort("AA2A2A2BBB")))
        world.run(program, started(after))
    assert after.first == ("A:begin:0", "B:begin:0")


def test_a_connection_that_was_not_there_before_is_no_other_order(tmp_path: Path) -> None:
    """It is opened in the middle of a schedule, and there in every later one."""
    (cell,) = (each for each in CORRECT if each.store == "redis_tasks:OpensWhenBusy")
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("a r | a r | a",)).found
    assert found.failure is None, found.failure
    assert found.programs[0].judged
    assert sum(one.repeated + one.diverged for one in found.programs) == 0


@pytest.mark.parametrize(("store", "program"), [("HurriesLater", "a r | a"), ("FailsLater", "a r")])
def test_what_only_a_used_store_shows_is_told_with_what_it_was_used_for(
    store: str, program: str, tmp_path: Path
) -> None:
    (cell,) = (each for each in PLANTED if each.store == f"redis_used:{store}")
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=(program,)).found
    failure = found.failure
    assert failure is not None, found.reason
    assert (found.status, failure.confirmed) == ("violated", CONFIRMATIONS)
    assert failure.past, "a new store does not show it"
    assert len(failure.past) <= 10, "no more than it takes"
    asked = msgspec.structs.replace(found.asked, programs=(failure.programs,), replay=failure.schedules)
    again = explore_interleavings(asked).found
    assert again.failure is not None, again.reason
    assert (again.failure.names, again.failure.past) == (failure.names, failure.past)
    fewer = msgspec.structs.replace(asked, programs=(failure.program,), replay=failure.schedule)
    assert explore_interleavings(fewer).found.failure is None


def test_what_never_comes_again_is_no_finding(tmp_path: Path) -> None:
    cell = Cell("redis_used:FailsOnce", "redis", "tasks")
    found = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("a a | a",)).found
    assert (found.status, found.failure) == ("unknown", None), found.reason
    assert "raised was seen on a store that had been used before, but not again" in (found.reason or "")


def in_threads(store: str) -> Cell:
    (cell,) = (each for each in (*PLANTED, *CORRECT) if each.store == f"with_threads:{store}")
    return cell


def test_a_store_that_waits_for_a_lock_with_pauses_is_not_starved(tmp_path: Path) -> None:
    found = in_threads("TriesAgain").explore(tmp_path, programs=("a | a",)).found
    assert found.failure is None
    assert found.status in ("held", "unknown"), "unknown, if the time was too short for every order"


def test_a_race_across_a_pause_is_found(tmp_path: Path) -> None:
    cell = in_threads("PausesBetween")
    failure = cell.explore(tmp_path, FOUND_WITHIN_S, programs=("a | a",)).found.failure
    assert failure is not None
    assert set(failure.names) & set(cell.names), failure.anomalies
