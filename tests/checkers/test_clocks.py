"""Retention to the last moment, and under clocks that lie."""

from __future__ import annotations

import pytest

from recollect.verify.judging.op import Element
from recollect.verify.judging.retention import EngineClock, Life

from .history_script import Script


def kept_for(retention_s: float, refresh: str = "append", bound_s: float = 0.1) -> Script:
    script = Script(refresh=refresh, clock_bound_s=bound_s)
    for _ in range(2):
        script.append(1, retention_s=retention_s)
    script.append(1, "other")
    script.read(2, 0, 1)
    return script


def at(script: Script, time_s: float) -> Script:
    """The next step of the script happens at exactly this time."""
    script.now_s = round(time_s - 0.01, 6)
    return script


@pytest.mark.parametrize("refresh", ["append", "message"])
def test_the_bound_belongs_to_the_doubt(refresh: str) -> None:
    late = Script(refresh=refresh, clock_bound_s=0.5)
    late.append(1, "other")
    late.begin(1, retention_s=5.0)
    at(late, 1.0).ok(1)
    at(late, 6.5).begin_read(2)
    late.end_read(2, 1)
    assert late.names() == []
    soon = Script(refresh=refresh, clock_bound_s=0.5)
    soon.append(1, "other")
    at(soon, 1.0).begin(1, retention_s=5.0)
    soon.ok(1)
    at(soon, 5.49).begin_read(2)
    at(soon, 5.5).end_read(2)
    assert soon.names() == []


def test_a_stranger_is_not_overdue_beside_the_last_message_written() -> None:
    for refresh in ("append", "message"):
        script = Script(refresh=refresh, clock_bound_s=0.1)
        script.append(1, retention_s=5.0)
        script.wait(5.5)
        script.read(2, Element(None, text="boo"), Element(0, 77))
        assert script.counts() == {"corrupted": 1, "phantom": 1}, refresh
        altered = Script(refresh=refresh, clock_bound_s=0.1)
        altered.append(1, retention_s=5.0)
        altered.wait(5.5)
        altered.read(2, Element(0, 77))
        assert altered.counts() == {"corrupted": 1}, refresh


def test_a_message_written_late_has_its_whole_life() -> None:
    script = Script(refresh="message", clock_bound_s=0.1)
    script.append(1, "other")
    script.wait(4.0)
    script.append(1, retention_s=5.0)
    script.wait(2.0)
    script.read(2)
    assert script.names() == ["expired-early"]


def test_a_message_without_retention_never_expires_among_those_with_one() -> None:
    script = kept_for(5.0, "message")
    script.append(1)
    script.read(2, 0, 1, 3)
    script.wait(6.0)
    script.read(2)
    assert script.counts() == {"dropped": 1}


def test_a_fault_without_an_offset_moves_no_clock() -> None:
    script = kept_for(5.0)
    script.inject("clock-forward")
    script.wait(4.5)
    script.read(2)
    assert script.names() == ["expired-early"]


def test_expired_before_the_clock_was_set_back() -> None:
    script = kept_for(5.0)
    script.wait(5.5)
    script.inject("clock-back", -60.0)
    script.read(2)
    assert script.names() == []


def test_expired_while_the_clock_was_ahead() -> None:
    script = kept_for(5.0)
    script.inject("clock-forward", 3.0)
    script.wait(2.5)
    script.heal("clock-forward")
    script.read(2)
    assert script.names() == []


def test_renewed_while_the_clock_was_back_ends_early() -> None:
    script = kept_for(5.0)
    script.inject("clock-back", -60.0)
    script.append(1, retention_s=5.0)
    script.heal("clock-back")
    script.read(2)
    assert script.names() == []


@pytest.mark.parametrize("healed", ["latency", "clock-back"])
def test_another_heal_does_not_set_the_clock_right(healed: str) -> None:
    script = kept_for(5.0)
    script.inject("clock-forward", 100.0)
    if healed == "latency":
        script.inject(healed)
    script.heal(healed)
    script.append(1, retention_s=5.0)
    script.heal("clock-forward")
    script.wait(6.0)
    script.read(2, 3)
    assert script.names() == []


def test_gone_too_early_after_an_append_renewed_it() -> None:
    script = kept_for(5.0)
    script.wait(3.0)
    script.append(3, retention_s=5.0)
    script.wait(3.0)
    script.read(2)
    assert script.counts() == {"expired-early": 3}


def test_what_the_engine_still_has_did_not_expire() -> None:
    script = kept_for(5.0)
    script.read(2)
    script.count(3, 2)
    assert script.counts() == {"hidden": 2}
    script = Script()
    script.append(1, retention_s=5.0)
    script.read(2)
    script.count(3, 1)
    assert "the engine has 1 row, the read returned 0" in script.only().sentence


def test_a_clock_that_was_not_alone_excuses_nothing_that_was_being_written() -> None:
    script = Script()
    script.append(1)
    script.append(1, "t")
    script.crash()
    script.read(2, 0)
    script.begin(1)
    script.inject("clock-forward", 100.0)
    script.heal("clock-forward")
    script.ok(1)
    script.read(2, 1, session="t")
    script.read(2)
    assert script.firsts() == {"dropped": "m2", "lost-tail": "m0"}


def test_overdue_and_doubled_counts_once() -> None:
    script = kept_for(5.0)
    script.wait(5.5)
    script.read(2, 0, 0, 1)
    assert script.counts() == {"duplicate": 1, "never-expired": 1}


def test_how_long_a_message_is_overdue() -> None:
    for refresh in ("append", "message"):
        script = kept_for(5.0, refresh)
        script.wait(5.5)
        script.read(2, 1)
        # m1 was acknowledged at 0.04 s, the read began at 5.59 s.
        assert "is over by 5.550 s, its retention is 5 s" in script.verdict().anomalies[-1].sentence, refresh


def test_the_engine_clock_is_an_interval() -> None:
    clock = EngineClock()
    assert (clock.low(1.0, 2.0), clock.high(1.0, 2.0)) == (1.0, 2.0)
    clock.inject("clock-forward", 10.0, 5.0)
    assert (clock.low(5.0, 5.0), clock.high(5.0, 5.0)) == (15.0, 15.0)
    assert (clock.low(6.0, 7.0), clock.high(6.0, 7.0)) == (16.0, 17.0)
    assert (clock.low(4.0, 6.0), clock.high(4.0, 6.0)) == (4.0, 16.0)
    clock.heal(8.0)
    assert (clock.low(7.0, 9.0), clock.high(7.0, 9.0)) == (8.0, 18.0)
    assert (clock.low(4.0, 9.0), clock.high(4.0, 9.0)) == (4.0, 18.0)
    assert (clock.low(8.0, 9.0), clock.high(8.0, 9.0)) == (8.0, 9.0)
    clock.inject("clock-back", -60.0, 10.0)
    assert (clock.low(7.0, 9.0), clock.high(7.0, 9.0)) == (8.0, 18.0)


def test_a_frozen_clock_may_stand_still() -> None:
    clock = EngineClock()
    clock.inject("clock-frozen", 0.0, 20.0)
    assert (clock.low(21.0, 22.0), clock.high(21.0, 22.0)) == (20.0, 22.0)


@pytest.mark.parametrize("offset_s", [3.0, -3.0])
def test_a_drifting_clock_may_go_either_way(offset_s: float) -> None:
    clock = EngineClock()
    clock.inject("ttl-drift", offset_s, 30.0)
    assert (clock.low(31.0, 32.0), clock.high(31.0, 32.0)) == (28.0, 35.0)


def living(refresh: str = "append") -> Life:
    """Renewed between 1 and 2 s of engine time, for 5 s, trusted to within 0.5 s."""
    life = Life(5.0, refresh, 0.5)  # type: ignore[arg-type]
    life.advance(100.0, 100.0, 1)
    assert (life.maybe_before, life.surely_before, life.renewed) == (0, 0, -1)
    life.begin(1.0)
    life.end("ok", 1.0, 2.0, 3, surely=True)
    assert life.renewed == 3
    return life


def test_a_life_ends_maybe_and_then_surely() -> None:
    life = living()
    life.advance(5.0, 5.4, 7)
    assert (life.maybe_before, life.surely_before) == (0, 0)
    life.advance(5.5, 5.5, 8)
    assert (life.maybe_before, life.surely_before) == (8, 0)
    life.advance(7.5, 7.5, 9)
    assert (life.maybe_before, life.surely_before) == (9, 0)
    life.advance(7.6, 7.6, 10)
    assert (life.maybe_before, life.surely_before) == (10, 10)
    life.advance(7.6, 7.6, 5)
    assert (life.maybe_before, life.surely_before) == (10, 10)
    assert life.age_s(7.5) == 5.5


def test_what_is_under_way_or_in_doubt_may_renew_at_any_time() -> None:
    under_way = living()
    under_way.begin(3.0)
    under_way.advance(50.0, 50.0, 9)
    assert (under_way.maybe_before, under_way.surely_before) == (9, 0)
    under_way.end("fail", 3.0, 51.0, 10, surely=True)
    assert under_way.renewed == 3
    under_way.advance(50.0, 50.0, 11)
    assert under_way.surely_before == 11
    in_doubt = living()
    in_doubt.begin(3.0)
    in_doubt.end("unknown", 3.0, 4.0, 8, surely=True)
    assert in_doubt.renewed == 3
    in_doubt.advance(50.0, 50.0, 9)
    assert (in_doubt.maybe_before, in_doubt.surely_before) == (9, 0)


@pytest.mark.parametrize(
    ("refresh", "surely", "maybe"), [("append", True, 0), ("append", False, 9), ("never", True, 9)]
)
def test_what_renews_nothing_for_sure_leaves_the_earliest_end(refresh: str, surely: bool, maybe: int) -> None:
    life = living(refresh)
    life.begin(3.0)
    life.end("ok", 3.0, 4.0, 8, surely=surely)
    life.advance(6.0, 6.0, 9)
    assert life.maybe_before == maybe
    assert life.age_s(6.0) == 2.0


def test_a_clock_set_back_brings_the_end_forward_only() -> None:
    life = living()
    life.rewind(3.0)
    life.advance(5.4, 5.4, 8)
    assert life.maybe_before == 0
    life.rewind(-60.0)
    life.advance(5.4, 5.4, 9)
    assert life.maybe_before == 9


def test_which_operations_renew() -> None:
    for refresh in ("append", "never", "message"):
        life = living(refresh)
        assert [life.may_renew(name) for name in ("append", "save", "read")] == [True, True, False]
    assert living("read").may_renew("read")
