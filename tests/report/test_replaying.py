"""What `recollect replay` says of its runs: how often, and nothing of those that concluded nothing."""

import io

import msgspec
import pytest

from recollect.commands import replay
from recollect.commands.console import PlainConsole
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.results import Result, Results
from tests.report.planned_cells import cell

HELD, VIOLATED = cell("cut", status="held"), cell("cut", "lost-tail")
UNKNOWN = msgspec.structs.replace(HELD, verdict=Verdict(status="unknown", reason="only 2 operations"))


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ([UNKNOWN, UNKNOWN], ["nothing could be concluded in 2 runs: only 2 operations"]),
        ([UNKNOWN], ["nothing could be concluded in 1 run: only 2 operations"]),
        (
            [HELD, UNKNOWN, HELD],
            ["nothing could be concluded in 1 of 3 runs: only 2 operations", "no anomaly in 2 of 3 runs"],
        ),
        (
            [VIOLATED, UNKNOWN],
            [
                "nothing could be concluded in 1 of 2 runs: only 2 operations",
                "lost-tail: seen in 1 of 2 runs",
            ],
        ),
        ([HELD, HELD], ["no anomaly in 2 of 2 runs"]),
    ],
)
def test_no_anomaly_is_only_said_of_runs_that_concluded(runs: list[Result], told: list[str]) -> None:
    said = io.StringIO()
    replay._rate(PlainConsole(file=said, width=200), Results(results=tuple(runs)))
    assert said.getvalue().splitlines() == told
