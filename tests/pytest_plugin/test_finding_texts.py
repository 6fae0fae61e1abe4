"""What the tests of a suite say of a bug that several of them show."""

from pathlib import Path
from typing import cast, get_args

import msgspec

from recollect.verify.judging.verdict import Status, Verdict
from recollect.verify.matrix.cell_process import Order
from recollect.verify.matrix.pool import CellPool
from recollect.verify.matrix.results import Result, Results, exit_code
from recollect.verify.matrix.selection import VerifyRequest
from recollect.verify.suite.finding_texts import FindingTexts, where
from recollect.verify.suite.suite import Bench, Suite, judged
from tests.report.planned_cells import anomaly, cell


class ScriptedPool:
    """Shows the anomaly as long as there are two writers."""

    def __init__(self, shows: str) -> None:
        self.shows = shows
        self.orders: list[Order] = []

    def run(self, order: Order) -> Result:
        self.orders.append(order)
        found = (anomaly(self.shows),) if order.scenario.writers > 1 else ()
        verdict = Verdict(status="violated" if found else "held", acked=2, anomalies=found)
        return Result(scenario=order.scenario, verdict=verdict)


def texts_of(pool: ScriptedPool) -> FindingTexts:
    return FindingTexts(cast(CellPool, pool))


def shown(fault: str, *names: str, folder: Path) -> Result:
    return msgspec.structs.replace(cell(fault, *names), folder=str(folder / fault))


def test_the_first_test_tells_it_whole_and_smaller(tmp_path: Path) -> None:
    pool = ScriptedPool("lost-update")
    text, replay = texts_of(pool).text([shown("restart", "lost-update", folder=tmp_path)])
    lines = text.splitlines()
    assert lines[0] == "lost-update (silent), confirmed 3 of 3"
    assert lines[1] == "lost-update happened"
    assert lines[2].startswith("smallest run: 2 writers, 1 session, 1 operation each")
    assert lines[-2].startswith("on redis, policy rdb, fault restart, ")
    assert lines[-1] == replay
    assert replay.startswith("recollect replay ")
    assert "/restart.smaller-" in replay, "what is replayed is the smallest run"
    assert [order.judge_again for order in pool.orders[:3]] == [False] * 3


def test_what_the_store_was_given_is_told_if_it_had_to_be_tried() -> None:
    assert "given" not in where(cell("cut"))
    assert "workload append, given mappings, seed" in where(cell("cut", form="mappings"))


def test_the_next_tests_name_the_first_and_run_nothing_again(tmp_path: Path) -> None:
    pool = ScriptedPool("lost-update")
    texts = texts_of(pool)
    texts.text([shown("restart", "lost-update", folder=tmp_path)])
    runs = len(pool.orders)
    text, replay = texts.text([cell("pause", status="held"), shown("cut", "lost-update", folder=tmp_path)])
    assert len(pool.orders) == runs
    assert text.splitlines()[0].endswith(": the same as in rdb restart append, where it is told")
    assert text.splitlines()[-1] == f"recollect replay {tmp_path / 'cut'}"
    assert "smaller" in replay


def test_another_bug_is_told_whole_as_well(tmp_path: Path) -> None:
    pool = ScriptedPool("lost-update")
    texts = texts_of(pool)
    texts.text([shown("restart", "lost-update", folder=tmp_path)])
    pool.shows = "duplicate"
    text, _ = texts.text([shown("lost-ack", "duplicate", folder=tmp_path)])
    assert text.startswith(
        "duplicate (silent), confirmed 3 of 3\nduplicate happened\nsmallest run: 2 writers"
    )


def test_what_was_not_concluded_is_said_beside_a_violation(tmp_path: Path) -> None:
    """An error of ours is no verdict on the store, and does not look like one."""
    doubt = Verdict(status="unknown", reason="only 2 operations")
    ours = Verdict(status="unknown", reason="an error in recollect itself; please report it: KeyError: 7")
    results = [
        shown("restart", "lost-update", folder=tmp_path),
        msgspec.structs.replace(cell("restart"), verdict=doubt),
        msgspec.structs.replace(cell("restart"), verdict=ours, trouble="internal"),
    ]
    bench = Bench(tmp_path, cast(CellPool, ScriptedPool("lost-update")))
    said = bench._judged(Suite("TestShop", "app:make", VerifyRequest(targets=("app:make",))), results)
    assert (said.outcome, said.status) == ("failed", "violated")
    starts = [part.splitlines()[0] for part in said.text.split("\n\n")]
    assert starts[0] == "lost-update (silent), confirmed 3 of 3"
    assert starts[-2:] == ["unknown, nothing can be concluded: only 2 operations", ours.reason]


def test_a_strict_suite_says_what_the_strict_command_says() -> None:
    """For every verdict without and with `strict`, a test fails where the exit code of that cell is not 0."""
    for status in get_args(Status):
        verdict = Verdict(status=status, reason="a reason", lost=1, acked=9)
        result = msgspec.structs.replace(cell("kill-engine"), verdict=verdict)
        for strict in (False, True):
            suite = Suite("TestShop", "app:make", VerifyRequest(targets=("app:make",)), strict=strict)
            said = judged(suite, [result])
            if status not in ("violated", "skipped"):  # told elsewhere; pytest has a word of its own for it
                failed = exit_code(Results(results=(result,)), strict=strict) != 0
                assert (said.outcome == "failed") is failed, (status, strict)
    exposed = msgspec.structs.replace(cell("lost-ack"), verdict=Verdict(status="exposed", reason="a reason"))
    assert judged(suite, [exposed]).text.startswith(
        "exposed: a reason\nThis is exposed, and the suite is strict."
    )
