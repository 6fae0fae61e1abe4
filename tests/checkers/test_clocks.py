"""Retention to the last moment, and under clocks that lie."""

from __future__ import annotations

import pytest

from recollect.verify.op import Element

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
    assert script.counts() == {"lost-update": 1}


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
