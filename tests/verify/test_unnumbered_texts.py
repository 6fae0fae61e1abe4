"""Texts without a number: a loss must not make the kit take one "yes" for another."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryWriter
from recollect.verify.judging.op import FaultDetail, HistoryHeader
from recollect.verify.judging.verdict import Verdict
from recollect.verify.running.transcript import Transcript
from recollect.verify.running.unnumbered_texts import Moments, Standing, Unmarked, _misplaced, standings
from recollect.verify.running.workloads import AppendTurn, Body, ReadBack
from recollect.verify.target import pipe
from recollect.verify.target.marked_text import Recognised

YES = Body("yes", marked=False)


ANYWHERE = Standing(float("-inf"), float("inf"))


def those_read(said: Unmarked, acknowledged: dict[int, int], *where: Standing) -> list[int]:
    """By a read that began at event 30, after a fault at event 10; a write begins an event before its answer."""
    invoked = {number: acknowledged.get(number, 29) - 1 for number in said.numbers}
    return said.those_read(where, Moments(invoked, acknowledged), began=30, disturbed=10)


@pytest.mark.parametrize(
    ("count", "numbers"),
    [
        (6, [0, 1, 2, 3, 4]),
        (5, [0, 1, 2, 3, 4]),
        (4, [0, 1, 2, 3]),  # 4 has no answer yet
        (3, [0, 2, 3]),  # 1 was acknowledged before the fault, and is the last of those
        (2, [2, 3]),
        (1, [2]),
    ],
)
def test_what_is_left_out(count: int, numbers: list[int]) -> None:
    said = Unmarked([0, 1, 2, 3, 4])
    assert those_read(said, {0: 1, 1: 3, 2: 20, 3: 25}, *[ANYWHERE] * count) == numbers


def test_what_was_acknowledged_after_the_read_began_need_not_be_there() -> None:
    assert those_read(Unmarked([0, 1, 2]), {0: 1, 1: 20, 2: 40}, ANYWHERE, ANYWHERE) == [0, 1]


def test_and_may_be_there_where_it_stands_behind_what_came_between() -> None:
    """Behind a message whose write began at 35 it can only be the last, which was acknowledged at 40."""
    said, acknowledged = Unmarked([0, 1, 2]), {0: 1, 1: 20, 2: 40}
    assert those_read(said, acknowledged, ANYWHERE, Standing(35, float("inf"))) == [1, 2]


def test_ahead_of_an_older_message_it_is_not_a_newer_one() -> None:
    said, acknowledged = Unmarked([0, 1, 2]), {0: 1, 1: 3, 2: 20}
    assert those_read(said, acknowledged, ANYWHERE) == [2]
    assert those_read(said, acknowledged, Standing(float("-inf"), 5)) == [0]


def test_what_failed_is_never_there() -> None:
    assert those_read(Unmarked([0, 1], failed={0}), {1: 20}, ANYWHERE) == [1]


def test_places_in_a_read() -> None:
    moments = Moments(invoked={7: 3, 8: 5, 9: 12}, acknowledged={7: 4, 9: 15})
    inf = float("inf")
    assert standings([-1, 7, -1, 8, -1, 9, -1], moments) == [
        Standing(-inf, 4),
        Standing(3, 15),
        Standing(5, 15),
        Standing(12, inf),
    ]


@given(st.data())
def test_the_cheapest_way(data: st.DataObject) -> None:
    """Compared with trying all of them."""
    count = data.draw(st.integers(1, 7))
    events = st.integers(0, 40)
    acknowledged = {n: data.draw(events) for n in range(count) if data.draw(st.booleans())}
    moments = Moments({n: data.draw(events) for n in range(count)}, acknowledged)
    where = [Standing(data.draw(events), data.draw(events)) for _ in range(data.draw(st.integers(1, count)))]
    told = Unmarked(list(range(count))).those_read(where, moments, began=30, disturbed=10)

    def cost(kept: tuple[int, ...]) -> float:
        omitted = [Unmarked._omitting(n, moments, 30, 10) for n in range(count) if n not in kept]
        return sum(omitted) + sum(_misplaced(n, at, moments) for n, at in zip(kept, where, strict=True))

    assert cost(tuple(told)) == min(cost(kept) for kept in combinations(range(count), len(where)))


class Talk:
    """One client says "yes" again and again to a store whose engine loses its tail."""

    def __init__(self, path: Path, fault: str, keeps_last: int | None = None) -> None:
        self._path, self._fault = path, fault
        header = HistoryHeader(
            recollect="0",
            engine="redis",
            policy="aof-everysec",
            fault=fault,
            ok_ops_min=1,
            keeps_last=keeps_last,
        )
        self._history = HistoryWriter(path.open("wb"), header)
        self._transcript = Transcript(self._history, retries=False, keeps_newest=keeps_last is not None)

    def yes(self, times: int) -> None:
        for _ in range(times):
            intent = AppendTurn("s", (YES,))
            self._transcript.begin(0, intent)
            self._transcript.end(0, intent, pipe.Acked())

    def strike(self) -> None:
        self._history.fault_injected(self._fault, FaultDetail())
        self._history.engine_stopped()
        self._history.engine_started()
        self._history.fault_healed(self._fault, FaultDetail())

    def read(self, times: int) -> None:
        intent = ReadBack("s")
        self._transcript.begin(1, intent)
        odd = [Recognised(None, intact=True, excerpt="yes") for _ in range(times)]
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


@pytest.mark.parametrize(("kept", "status"), [(10, "held"), (4, "violated")])
def test_a_declared_window_keeps_the_newest_of_equal_texts(tmp_path: Path, kept: int, status: str) -> None:
    """The newest were taken for missing, as after a lost tail, and a store that keeps what it says was accused."""
    talk = Talk(tmp_path / "history.jsonl", "restart", keeps_last=10)
    talk.strike()
    talk.yes(6)
    talk.read(min(6, kept))
    talk.yes(10)
    talk.read(kept)
    talk.yes(1)
    talk.read(kept)
    assert talk.verdict().status == status
