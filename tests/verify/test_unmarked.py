"""Texts without a number: a loss must not make the kit take one "yes" for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.verify import pipe
from recollect.verify.analyze import analyze
from recollect.verify.history import History, HistoryWriter
from recollect.verify.op import Disturbance, Header
from recollect.verify.transcript import Transcript
from recollect.verify.unmarked import Unmarked
from recollect.verify.verdict import Verdict
from recollect.verify.workloads import Body, ReadBack, Write

YES = Body("yes", marked=False)


@pytest.mark.parametrize(
    ("count", "numbers"),
    [
        (5, [0, 1, 2, 3, 4]),
        (4, [0, 1, 2, 3]),  # 4 has no answer yet
        (3, [0, 2, 3]),  # 1 was acknowledged before the fault, and is the last of those
        (2, [2, 3]),
        (1, [2]),
        (0, [0, 1, 2, 3, 4]),
    ],
)
def test_what_is_left_out(count: int, numbers: list[int]) -> None:
    said = Unmarked([0, 1, 2, 3, 4], acknowledged={0: 1, 1: 3, 2: 20, 3: 25})
    assert said.those_read(count, began=30, disturbed=10) == numbers


def test_what_was_acknowledged_after_the_read_began_need_not_be_there() -> None:
    said = Unmarked([0, 1, 2], acknowledged={0: 1, 1: 20, 2: 40})
    assert said.those_read(2, began=30, disturbed=10) == [0, 1]


def test_what_failed_is_never_there() -> None:
    assert Unmarked([0, 1], failed={0}).those_read(1, began=9, disturbed=-1) == [1]


class Talk:
    """One client says "yes" again and again to a store whose engine loses its tail."""

    def __init__(self, path: Path, fault: str) -> None:
        self._path, self._fault = path, fault
        header = Header(recollect="0", engine="redis", policy="aof-everysec", fault=fault, ok_ops_min=1)
        self._history = HistoryWriter(path.open("wb"), header)
        self._transcript = Transcript(self._history, retries=False)

    def yes(self, times: int) -> None:
        for _ in range(times):
            intent = Write("s", (YES,))
            self._transcript.begin(0, intent)
            self._transcript.end(0, intent, pipe.Acked())

    def strike(self) -> None:
        self._history.fault_injected(self._fault, Disturbance())
        self._history.engine_stopped()
        self._history.engine_started()
        self._history.fault_healed(self._fault, Disturbance())

    def read(self, times: int) -> None:
        intent = ReadBack("s")
        self._transcript.begin(1, intent)
        odd = [pipe.Odd(None, True, False, "yes") for _ in range(times)]
        self._transcript.end(1, intent, pipe.Elements([-1] * times, odd))

    def verdict(self) -> Verdict:
        self._history.close()
        return analyze(History(self._path))


def test_a_lost_tail_is_nothing_else(tmp_path: Path) -> None:
    talk = Talk(tmp_path / "history.jsonl", "slow-fsync")
    talk.yes(4)
    talk.read(4)
    talk.strike()
    talk.yes(1)
    talk.read(2)
    talk.yes(1)
    talk.read(3)
    verdict = talk.verdict()
    assert {anomaly.name: anomaly.count for anomaly in verdict.anomalies} == {"lost-tail": 3}
    assert verdict.status == "documented-loss"


def test_what_was_said_since_the_fault_may_not_be_missing(tmp_path: Path) -> None:
    talk = Talk(tmp_path / "history.jsonl", "slow-fsync")
    talk.yes(1)
    talk.strike()
    talk.yes(3)
    talk.read(2)
    assert talk.verdict().status == "violated"
