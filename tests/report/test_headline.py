"""The sentence on top of the page: a loss is never hidden behind a good word, and silence is no success."""

import pytest

from recollect.verify.judging.verdict import Anomaly, Status, Verdict, WitnessEvents
from recollect.verify.matrix.findings import findings
from recollect.verify.matrix.results import Result, Results
from recollect.verify.report.html import headline
from recollect.verify.running.scenario import Scenario

SCENARIO = Scenario(target="redis", engine="redis", policy="rdb", fault="kill-engine")
LOST: dict[Status, int] = {"violated": 2, "documented-loss": 3}


@pytest.mark.parametrize(
    ("statuses", "first", "more"),
    [
        (
            ("held", "held"),
            "Everything acknowledged was still there",
            "20 messages were acknowledged in 2 runs",
        ),
        (("held", "documented-loss"), "1 of 2 runs lost messages, as the engine announces", "3 of the 10"),
        (
            ("held", "violated", "documented-loss"),
            "1 finding: violated",
            "In 1 more, messages were lost",
        ),
        (
            ("violated", "violated", "skipped"),
            "1 finding: violated",
            "4 of the 20 messages acknowledged in 2 runs",
        ),
        (("unknown", "skipped"), "Nothing could be concluded", "No run came far enough"),
        (
            ("held", "unknown"),
            "Everything acknowledged was still there",
            "In 1 run nothing could be concluded",
        ),
        ((), "Nothing could be concluded", "No run"),
    ],
)
def test_it_says_the_worst_first(statuses: tuple[Status, ...], first: str, more: str) -> None:
    results = [
        Result(scenario=SCENARIO, verdict=Verdict(status=status, acked=10, lost=LOST.get(status, 0)))
        for status in statuses
    ]
    everything = Results(results=tuple(results))
    said = headline(everything, findings(everything))
    assert said[0] == first
    assert more in said[1]


def test_a_message_that_came_back_as_another_is_changed_and_not_gone() -> None:
    changed = Anomaly("corrupted", 2, True, WitnessEvents(session="s"), "m1 came back without its name")
    verdict = Verdict(status="violated", acked=10, lost=2, anomalies=(changed,))
    assert verdict.account == "2 of 10 changed"
    everything = Results(results=(Result(scenario=SCENARIO, verdict=verdict),))
    assert headline(everything, findings(everything))[1].startswith(
        "2 of the 10 messages acknowledged in one run are changed"
    )
