"""Retention: too early, never, renewed by whom, and with which clock."""

from __future__ import annotations

from recollect.verify.judging.op import Element

from .history_script import Script


def kept_for(retention_s: float, refresh: str = "append", **header: object) -> Script:
    script = Script(refresh=refresh, clock_bound_s=0.1, **header)
    for _ in range(2):
        script.append(1, retention_s=retention_s)
    script.append(1, "other")
    script.read(2, 0, 1)
    return script


def test_gone_when_its_time_has_come() -> None:
    script = kept_for(5.0)
    script.wait(5.0)
    script.read(2)
    assert script.names() == []
    assert script.verdict().forgotten == 2


def test_gone_too_early_although_nothing_happened() -> None:
    script = kept_for(5.0)
    script.wait(4.0)
    script.read(2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count) == ("expired-early", 2)
    assert "kept for 5 s" in anomaly.sentence


def test_missing_in_the_middle_of_a_living_session_is_not_expiry() -> None:
    script = kept_for(5.0)
    script.read(2, 1)
    assert script.names() == ["trimmed"]


def test_within_the_clock_bound_nothing_is_claimed() -> None:
    script = kept_for(5.0)
    script.wait(4.95)
    script.read(2)
    assert script.names() == []
    for refresh in ("append", "message"):
        late = kept_for(5.0, refresh)
        late.wait(5.0)
        late.read(2, 0, 1)
        assert late.names() == []
        soon = kept_for(5.0, refresh)
        soon.wait(4.92)
        soon.read(2)
        assert soon.names() == []


def test_still_there_after_its_time() -> None:
    script = kept_for(5.0)
    script.wait(5.5)
    script.read(2, 0, 1)
    script.read(2, 0, 1)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count) == ("never-expired", 2)
    assert "its retention is 5 s" in anomaly.sentence


def test_strangers_have_no_retention() -> None:
    for refresh in ("append", "message"):
        script = kept_for(5.0, refresh)
        script.append(1)
        script.read(2, 0, 1, 3)
        script.wait(5.5)
        script.read(2, Element(None, text="boo"), 0, 1, 3)
        assert script.counts() == {"phantom": 1, "never-expired": 2}, refresh


def test_a_write_in_doubt_is_never_overdue() -> None:
    script = kept_for(5.0, "message")
    script.append(1, retention_s=5.0, outcome="unknown")
    script.wait(5.5)
    script.read(2, 3)
    assert script.names() == []


def test_an_append_renews_and_says_who_did() -> None:
    script = kept_for(5.0)
    script.wait(3.0)
    script.append(3, retention_s=5.0)
    script.wait(3.0)
    script.read(2, 0, 1, 3)
    assert script.names() == []
    script.wait(3.0)
    script.read(2, 0, 1, 3)
    assert script.counts() == {"never-expired": 3}


def test_without_refresh_an_append_renews_nothing() -> None:
    script = kept_for(5.0, "never")
    script.wait(3.0)
    script.append(3, retention_s=5.0)
    script.wait(3.0)
    script.read(2)
    assert script.names() == []


def test_a_read_renews_only_where_declared() -> None:
    renewed = kept_for(5.0, "read")
    renewed.wait(3.0)
    renewed.read(2, 0, 1)
    renewed.wait(3.0)
    renewed.read(2, 0, 1)
    assert renewed.names() == []
    renewed.wait(4.0)
    renewed.read(2)
    assert renewed.names() == ["expired-early"]
    plain = kept_for(5.0, "append")
    plain.wait(3.0)
    plain.read(2, 0, 1)
    plain.wait(3.0)
    plain.read(2)
    assert plain.names() == []


def test_messages_with_lives_of_their_own() -> None:
    script = kept_for(5.0, "message")
    script.wait(3.0)
    script.append(3, retention_s=5.0)
    script.wait(3.0)
    script.read(2, 3)
    assert script.names() == []
    overdue = kept_for(5.0, "message")
    overdue.wait(3.0)
    overdue.append(3, retention_s=5.0)
    overdue.wait(3.0)
    overdue.read(2, 0, 1, 3)
    assert overdue.counts() == {"never-expired": 2}
    early = kept_for(5.0, "message")
    early.wait(3.0)
    early.read(2, 1)
    assert early.counts() == {"expired-early": 1}


def test_a_clock_moved_less_than_the_retention() -> None:
    script = kept_for(600.0)
    struck = script.inject("clock-forward", 300.0)
    script.read(2)
    anomaly = script.only()
    assert (anomaly.name, anomaly.count, anomaly.first.fault_event) == ("expired-early", 2, struck)


def test_a_clock_moved_further_than_the_retention() -> None:
    gone = kept_for(600.0)
    gone.inject("clock-forward", 900.0)
    gone.read(2)
    assert gone.names() == []
    stayed = kept_for(600.0)
    stayed.inject("clock-forward", 900.0)
    stayed.read(2, 0, 1)
    assert stayed.names() == ["never-expired"]


def test_a_crash_beside_a_clock_fault_is_a_loss_not_an_expiry() -> None:
    script = kept_for(600.0)
    script.inject("clock-forward", 60.0)
    script.heal("clock-forward")
    script.crash("power-loss")
    script.read(2)
    script.read(2, 2, session="other")
    assert script.counts() == {"lost-tail": 2}


def test_memory_without_a_retention_is_for_ever() -> None:
    script = Script()
    script.append(1)
    script.append(1, "other")
    script.inject("clock-forward", 604800.0)
    script.read(2)
    script.read(2, session="other")
    anomaly = script.only()
    assert (anomaly.name, anomaly.count) == ("expired-early", 2)
    assert "for ever" in anomaly.sentence


def test_the_retention_demanded_on_the_command_line() -> None:
    script = Script(retain_s=604800.0)
    script.append(1)
    script.inject("clock-forward", 600000.0)
    script.read(2)
    assert "for 604800 s" in script.only().sentence


def test_what_expired_while_the_clock_was_wrong_stays_gone() -> None:
    script = kept_for(600.0)
    script.inject("clock-forward", 900.0)
    script.heal("clock-forward")
    script.read(2)
    assert script.names() == []


def test_a_life_renewed_after_the_clock_was_set_back_is_shorter() -> None:
    script = Script(clock_bound_s=0.1)
    script.inject("clock-forward", 100.0)
    script.append(1, retention_s=5.0)
    script.heal("clock-forward")
    script.append(1, retention_s=5.0)
    script.read(2, 0, 1)
    script.wait(5.5)
    script.read(2)
    assert script.names() == []


def test_a_frozen_clock_expires_nothing() -> None:
    script = kept_for(5.0)
    script.inject("clock-frozen")
    script.wait(9.0)
    script.read(2, 0, 1)
    assert script.names() == []


def test_drifting_replicas_are_given_their_drift() -> None:
    script = kept_for(5.0)
    script.inject("ttl-drift", 2.0)
    script.wait(3.5)
    script.read(2)
    assert script.names() == []
    late = kept_for(5.0)
    late.inject("ttl-drift", 2.0)
    late.wait(6.5)
    late.read(2, 0, 1)
    assert late.names() == []


def test_a_write_in_doubt_may_have_renewed() -> None:
    script = kept_for(5.0)
    script.wait(4.0)
    script.append(3, retention_s=5.0, outcome="unknown")
    script.wait(3.0)
    script.read(2, 0, 1)
    assert script.names() == []
