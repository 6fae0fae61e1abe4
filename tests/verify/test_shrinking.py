"""Making a run smaller, and avoiding what is known."""

from collections.abc import Callable

import msgspec
import pytest

from recollect.verify.judging.verdict import Anomaly, Verdict, WitnessEvents
from recollect.verify.matrix.avoiding import avoiding
from recollect.verify.matrix.findings import findings
from recollect.verify.matrix.results import Result, Results
from recollect.verify.matrix.shrinking import Shrinker, size_of
from recollect.verify.running.scenario import Scenario

LARGE = Scenario(target="a:make", engine="redis", policy="rdb", fault="none", workload="turns")


def smallest(shows: Callable[[Scenario], bool], scenario: Scenario = LARGE) -> tuple[Scenario, int]:
    """Where shrinking ends, and how many runs it took."""
    shrinker, runs = Shrinker(scenario), 0
    while (candidate := shrinker.next()) is not None:
        runs += 1
        assert runs < 200
        shrinker.heard(candidate, shows=shows(candidate))
    assert shrinker.finished
    return shrinker.smallest, runs


def operations(scenario: Scenario) -> int:
    return 1_000_000 if scenario.ops_max is None else scenario.ops_max


@pytest.mark.parametrize(
    ("shows", "size"),
    [
        (lambda run: True, (1, 1, 1, 0, 1)),
        (lambda run: run.writers >= 2, (2, 1, 1, 0, 1)),
        (lambda run: operations(run) >= 5, (1, 5, 1, 0, 1)),
        (lambda run: operations(run) >= 30 and run.readers > 0, (1, 30, 1, 1, 1)),
        (lambda run: run.turn_max is None or run.turn_max > 1, (1, 1, 1, 0, 2)),
        (lambda run: run.sessions > 1 and run.writers > 2, (3, 1, 3, 0, 1)),
        (lambda run: operations(run) >= 50 * run.sessions, (1, 50, 1, 0, 1)),
    ],
)
def test_it_goes_on_until_nothing_smaller_shows_it(
    shows: Callable[[Scenario], bool], size: tuple[int, ...]
) -> None:
    found, _ = smallest(shows)
    assert size_of(found) == size


def test_what_loads_before_it_saves_is_not_tried_with_one_operation() -> None:
    tried: list[Scenario] = []

    def shows(run: Scenario) -> bool:
        tried.append(run)
        return True

    found, _ = smallest(shows, msgspec.structs.replace(LARGE, workload="rewrite"))
    assert found.ops_max == 2
    assert all(operations(run) >= 2 for run in tried)


def test_what_nothing_smaller_shows_ends_soon() -> None:
    found, runs = smallest(lambda run: False)
    assert found == LARGE
    assert runs <= 20


def test_bad_luck_once_does_not_end_it() -> None:
    seen: set[tuple[int, ...]] = set()

    def second_time(run: Scenario) -> bool:
        again = size_of(run) in seen
        seen.add(size_of(run))
        return again

    assert size_of(smallest(second_time)[0]) == (1, 1, 1, 0, 1)


def found_in(scenario: Scenario, name: str = "lost-update") -> Results:
    broken = (Anomaly(name, 1, True, WitnessEvents(), "gone"),)
    result = Result(scenario=scenario, verdict=Verdict(status="violated", anomalies=broken), folder="000-x")
    return Results(results=(result,))


def test_a_bug_of_several_writers_is_avoided_by_sessions_of_their_own() -> None:
    known = found_in(LARGE)
    kill = msgspec.structs.replace(LARGE, fault="kill-engine")
    changed, hidden = avoiding(kill, findings(known), known)
    assert (changed.apart, hidden) == (True, None)
    _, hidden = avoiding(msgspec.structs.replace(LARGE, fault="concurrent-writers"), findings(known), known)
    assert hidden is not None
    assert hidden.number == 1
    releases = msgspec.structs.replace(LARGE, fault="older-writer")
    assert avoiding(releases, findings(known), known) == (releases, None)
    other = msgspec.structs.replace(kill, target="b:make")
    assert avoiding(other, findings(known), known) == (other, None)


def test_a_race_of_tasks_leaves_several_processes_to_be_looked_at() -> None:
    known = found_in(msgspec.structs.replace(LARGE, workload="interleavings", writers=2))
    for variant in ("one-writer", "several-writers"):
        bare = msgspec.structs.replace(LARGE, variant=variant)
        assert avoiding(bare, findings(known), known) == (bare, None)
    changed, hidden = avoiding(msgspec.structs.replace(LARGE, fault="cut"), findings(known), known)
    assert (changed.apart, hidden) == (True, None)
    callers = msgspec.structs.replace(LARGE, variant="several-callers")
    assert avoiding(callers, findings(known), known)[1] is not None, "they would only show it again"
    beside_a_fault = msgspec.structs.replace(callers, fault="cut")
    assert avoiding(beside_a_fault, findings(known), known)[1] is not None, "they share a store there, too"


def test_a_bug_of_hard_content_hides_cells_with_that_content_only() -> None:
    known = found_in(
        msgspec.structs.replace(LARGE, variant="one-writer", writers=1, workload="mixed"), "corrupted"
    )
    kill = msgspec.structs.replace(LARGE, fault="kill-engine")
    assert avoiding(kill, findings(known), known) == (kill, None)
    assert avoiding(msgspec.structs.replace(kill, workload="mixed"), findings(known), known)[1] is not None


def test_a_bug_of_one_writer_can_not_be_avoided() -> None:
    known = found_in(msgspec.structs.replace(LARGE, variant="one-writer", writers=1), "hole")
    kill = msgspec.structs.replace(LARGE, fault="kill-engine")
    assert avoiding(kill, findings(known), known) == (kill, None)
