"""Where a promise ends: what it allows, what its window covers, and what leaves the caller exposed."""

from __future__ import annotations

import pytest

from recollect.verify.judging.evidence import NOTICED, UNSAFE_COPY
from recollect.verify.judging.op import Element, FaultDetail, ReadAsked
from recollect.verify.judging.verdict import UNNOTICED, Anomaly, Verdict, WitnessEvents, must_recover

from .history_script import Script, written
from .test_exposed import copies
from .test_recovery import failing


@pytest.mark.parametrize("fault", ["wipe-volume", "downgrade"])
def test_other_data_that_nobody_notices_is_exposed(fault: str) -> None:
    assert fault in UNNOTICED
    script = written(fault=fault)
    script.crash(fault)
    script.read(2)
    verdict = script.verdict()
    assert verdict.status == "exposed"
    assert (verdict.reason or "").startswith(f"{fault} is not noticed")


@pytest.mark.parametrize(
    ("fault", "wiped_first", "status"),
    [
        ("wipe-volume", True, "exposed"),  # one process has the old files, another new ones
        ("wipe-volume", False, "violated"),
        ("kill-engine", True, "violated"),
    ],
)
@pytest.mark.parametrize("reader", [2, 1])
def test_processes_with_other_data_side_by_side_are_exposed(
    fault: str, wiped_first: bool, status: str, reader: int
) -> None:
    script = written(fault=fault)
    if wiped_first:
        script.inject(fault)
    script.append(1)
    script.read(reader, 0, 1, 2)
    script.read(reader, 0, 1, 2, 3)
    if not wiped_first:
        script.inject(fault)
    script.heal(fault)
    script.read(2, 0, 1, 2, 3)
    assert script.verdict().status == status


def test_data_that_a_kill_took_is_not_exposed() -> None:
    script = written(fault="kill-engine")
    script.crash()
    script.read(2)
    assert script.verdict().status == "violated"


def test_nor_what_a_kill_took_beside_a_wipe() -> None:
    script = written(fault="wipe-volume")
    script.crash("kill-engine")
    script.read(2, 0, 1)
    script.inject("wipe-volume")
    script.heal("wipe-volume")
    script.read(2, 0, 1)
    assert script.verdict().status == "violated"


def test_nor_what_a_wipe_took_that_nobody_asked_for() -> None:
    script = written(fault="restart")
    script.crash("restart")
    script.read(2, 0, 1, 2)
    script.crash("wipe-volume")
    script.read(2)
    assert script.verdict().status == "violated"


def test_where_the_engine_keeps_nothing_the_loss_is_documented_before_it_is_exposed() -> None:
    script = written(policy="none", fault="policy-change")
    script.crash("policy-change")
    script.read(2)
    assert script.verdict().status == "documented-loss"


def test_two_copies_are_told_as_a_retry() -> None:
    assert (copies((), 2, 2).verdict().reason or "").startswith("a retry stores twice")


# ---- bits that flip at rest, where the engine has no checksum


OTHER, DAMAGED = Element(1, 77), Element(1, damaged=True)


@pytest.mark.parametrize(
    ("shown", "status"),
    [((OTHER,), "exposed"), ((DAMAGED,), "documented-loss"), ((DAMAGED, Element(2, 78)), "exposed")],
    ids=["silent", "loud", "one of each"],
)
def test_rot_that_is_told_is_documented_and_rot_that_is_not_is_exposed(
    shown: tuple[Element, ...], status: str
) -> None:
    script = written(fault="bit-rot")
    script.crash("bit-rot")
    script.read(2, 0, *shown, *range(1 + len(shown), 3))
    verdict = script.verdict()
    assert verdict.status == status
    assert (verdict.reason or "").startswith("bits that flipped") == (status == "exposed")


@pytest.mark.parametrize("rots", [True, False])
def test_other_content_before_the_rot_is_the_stores_own(rots: bool) -> None:
    script = written(fault="bit-rot")
    script.read(2, 0, OTHER, 2)
    if rots:
        script.crash("bit-rot")
        script.read(2, 0, OTHER, 2)
    assert script.verdict().status == "violated"


# ---- a sync that fails on SQLite


@pytest.mark.parametrize(
    ("told", "policy", "status"),
    [
        ("before", "wal-full", "documented-loss"),
        ("after", "wal-full", "violated"),
        ("never", "wal-full", "violated"),
        ("before", "delete-extra", "documented-loss"),
    ],
)
def test_what_a_failed_sync_takes_is_documented_once_a_caller_was_told(
    told: str, policy: str, status: str
) -> None:
    script = written(engine="sqlite", policy=policy, fault="fsync-error")
    script.inject("fsync-error")
    if told == "before":
        script.append(1, outcome="unknown")
    lost = script.append(1)
    if told == "after":
        script.append(1, outcome="unknown")
    script.restart()
    script.heal("fsync-error")
    kept = script.append(2)
    assert lost < kept
    script.read(2, 0, 1, 2, kept)
    assert script.verdict().status == status


# ---- a backup that is put back


def restored(*shown: int | Element, said: str = "", beside: int | Element | None = None) -> Verdict:
    """Three messages, a backup, two more; after the backup is put back a read shows these."""
    script = written(fault="restore")
    if beside is not None:
        script.read(2, 0, beside, 2)
    script.step()
    script.writer.fault_injected("restore", FaultDetail(detail=said))
    script.append(1)
    script.append(1)
    script.read(2, 0, 1, 2, 3, 4)
    script.restart()
    script.heal("restore")
    script.read(2, *shown)
    return script.verdict()


def test_what_a_backup_lacks_is_exposed_unless_the_store_notices() -> None:
    assert restored(0, 1, 2).status == "exposed"
    assert restored(0, 1, 2, said=NOTICED).status == "documented-loss"


@pytest.mark.parametrize("said", ["", NOTICED])
def test_what_was_there_before_the_backup_is_in_it(said: str) -> None:
    assert restored(0, 1, said=said).status == "violated"


@pytest.mark.parametrize("said", ["", NOTICED])
def test_a_backup_changes_nothing(said: str) -> None:
    assert restored(0, Element(1, 77), 2, said=said).status == "violated"
    assert restored(0, 1, 2, Element(3, 77), said=said).status == "violated", (
        "nor what is newer than the backup"
    )


def test_without_a_backup_nothing_comes_back() -> None:
    script = written(fault="restore")
    script.forget(1)
    script.read(2, 0, 1, 2)
    assert script.verdict().status == "violated"


def test_files_that_were_copied_while_in_use_are_no_backup() -> None:
    verdict = restored(0, Element(1, 77), 2, said=UNSAFE_COPY)
    assert verdict.status == "exposed"
    assert (verdict.reason or "").startswith("the copy is torn")
    before = restored(0, Element(1, 77), 2, said=UNSAFE_COPY, beside=Element(1, 77))
    assert before.status == "violated"


# ---- a run younger than the window


def young(*, at_s: float = 0.2, policy: str = "async-commit", claim: str | None = None) -> Script:
    """The engine dies at that moment, and what was written before is gone with its table."""
    script = Script(engine="postgres", policy=policy, fault="power-loss")
    for _ in range(5):
        script.append(1, claim=claim)
    script.now_s = round(at_s - 0.01, 6)
    script.crash("power-loss")
    script.fail_read(2, error="UndefinedTableError")
    script.fail_read(2, error="UndefinedTableError")
    return script


def window_s() -> float:
    found = young().verdict().promised_window_s
    assert found is not None
    return found


def test_a_run_exactly_as_old_as_the_window_can_be_judged() -> None:
    assert young(at_s=window_s() - 0.01).verdict().status == "unknown"
    assert young(at_s=window_s()).verdict().status == "violated"


def test_without_a_window_there_is_no_age_to_wait_for() -> None:
    script = written(policy="none", fault="kill-engine")
    script.crash()
    script.fail_read(2)
    assert script.verdict().status == "violated"


def test_a_young_run_may_fail_to_read_and_to_write() -> None:
    verdict = failing(young()).verdict()
    assert {anomaly.name for anomaly in verdict.anomalies} == {"unreadable", "does-not-recover"}
    assert verdict.status == "unknown"


def test_what_was_acknowledged_as_fsynced_is_missed_at_any_age() -> None:
    script = Script(engine="postgres", policy="async-commit", fault="power-loss")
    script.append(1, "other", claim="fsynced")
    script.append(1)
    script.crash("power-loss")
    script.read(2, session="other")
    script.fail_read(2, error="UndefinedTableError")
    script.fail_read(2, error="UndefinedTableError")
    verdict = script.verdict()
    assert "unreadable" in {anomaly.name for anomaly in verdict.anomalies}
    assert verdict.status == "violated"


# ---- which names a promise covers


def holed(policy: str, *, overlap: bool) -> Verdict:
    """Messages 1 and 2, of which the fault takes the first."""
    script = Script(policy=policy, fault="kill-engine")
    script.append(9, "other")
    if overlap:
        script.begin_each(1, 2)
        script.ok_each(1, 2)
    else:
        script.append(1)
        script.append(2)
    script.read(9, 1, 2)
    script.crash()
    script.read(9, 2)
    script.read(9, 0, session="other")
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies][:1] == ["hole"]
    return verdict


@pytest.mark.parametrize(
    ("policy", "overlap", "status"),
    [
        ("aof-everysec", True, "documented-loss"),
        ("aof-everysec", False, "violated"),
        ("aof-always", True, "violated"),
        ("none", False, "documented-loss"),
    ],
)
def test_a_hole_is_a_tail_only_between_overlapping_writes(policy: str, overlap: bool, status: str) -> None:
    assert holed(policy, overlap=overlap).status == status


def back_again(*, base: bool, before: bool = False) -> Verdict:
    """A read lacks a message that a later read has; the engine died in between, or before it was written."""
    script = Script(policy="aof-everysec", fault="power-loss")
    script.append(9, "other")
    loaded = script.read(1)
    if before:
        script.crash("power-loss")
    script.append(1, operation="save" if base else "append", base=loaded if base else None)
    script.read(2, 1)
    if not before:
        script.crash("power-loss")
    script.read(3)
    script.read(2, 1)
    return script.verdict()


def test_only_a_list_that_somebody_saves_again_comes_back_after_a_documented_loss() -> None:
    assert back_again(base=True).status == "documented-loss"
    assert back_again(base=False).status == "violated"
    assert back_again(base=True, before=True).status == "violated"


def put_back(*abilities: str, late: bool = False, elsewhere: bool = False) -> Verdict:
    """A write that had read the session before the engine died is acknowledged after a read that lacks its end."""
    script = Script(policy="aof-everysec", fault="power-loss", abilities=abilities)
    script.append(9, "other")
    script.append(1)
    script.read(2, 1)
    if late:
        script.crash("power-loss")
    script.begin(1, "other" if elsewhere else "s")
    if not late:
        script.crash("power-loss")
    script.read(3)
    script.ok(1)
    script.read(2, *((1,) if elsewhere else (1, 2)))
    return script.verdict()


def test_a_state_that_a_write_puts_back_comes_back_after_a_documented_loss() -> None:
    assert put_back("rewrites").status == "documented-loss"
    assert put_back().status == "violated"
    assert put_back("rewrites", late=True).status == "violated"
    assert put_back("rewrites", elsewhere=True).status == "violated"


# ---- a retract that the engine lost


def retracted(
    policy: str, fault: str, *, engine: str = "redis", claim: str | None = None, late_s: float = 0.0
) -> Verdict:
    """A message is taken back, and is there again after the fault."""
    script = Script(engine=engine, policy=policy, fault=fault)
    for _ in range(3):
        script.append(1)
    script.read(2, 0, 1, 2)
    script.wait(5.0)
    script.retract(1, 1, claim=claim)
    script.wait(late_s)
    script.crash(fault)
    script.read(2, 0, 1, 2)
    verdict = script.verdict()
    assert [anomaly.name for anomaly in verdict.anomalies] == ["resurrected"]
    return verdict


@pytest.mark.parametrize(
    ("policy", "fault", "late_s", "status"),
    [
        ("aof-everysec", "power-loss", 0.0, "documented-loss"),
        ("aof-everysec", "power-loss", 1.98, "documented-loss"),
        ("aof-everysec", "power-loss", 2.5, "violated"),
        ("aof-always", "power-loss", 0.0, "violated"),
        ("rdb", "kill-engine", 60.0, "documented-loss"),
        ("rdb", "failover", 0.0, "documented-loss"),
    ],
)
def test_a_retract_is_part_of_the_tail(policy: str, fault: str, late_s: float, status: str) -> None:
    assert retracted(policy, fault, late_s=late_s).status == status


def test_a_retract_that_was_acknowledged_as_fsynced_stays() -> None:
    assert retracted("aof-everysec", "power-loss", claim="fsynced").status == "violated"
    assert retracted("aof-everysec", "power-loss", claim="written").status == "documented-loss"


@pytest.mark.parametrize(("stays", "status"), [(True, "violated"), (False, "documented-loss")])
def test_a_replica_may_show_a_retracted_message_for_a_while(stays: bool, status: str) -> None:
    script = Script(fault="replica-lag")
    for _ in range(3):
        script.append(1)
    script.read(2, 0, 1, 2)
    script.inject("replica-lag")
    script.retract(1, 1)
    script.read(3, 0, 1, 2, ask=None if stays else ReadAsked(last=3))
    script.heal("replica-lag")
    script.read(3, 0, *([1] if stays else []), 2)
    assert script.verdict().status == status


# ---- runs that were stopped


@pytest.mark.parametrize(("refused", "status"), [(False, "unknown"), (True, "documented-loss")])
def test_a_run_that_was_stopped_concludes_only_what_the_engine_said(refused: bool, status: str) -> None:
    script = written(policy="aof-everysec", fault="power-loss")
    script.inject("power-loss")
    if refused:
        script.step()
        script.writer.engine_refused("bad file format")
    script.step()
    script.writer.run_stopped("the run was stopped")
    verdict = script.verdict()
    assert verdict.status == status, verdict.reason
    assert verdict.reason == (None if refused else "the run was stopped")


def test_a_store_that_finds_other_data_need_not_go_on() -> None:
    assert must_recover("redis", "aof-always", "kill-engine")
    assert not must_recover("redis", "aof-always", "wipe-volume")


def test_what_broke_the_promise_is_what_it_does_not_cover_or_all_of_it() -> None:
    covered, bare = (
        Anomaly(name, 1, True, WitnessEvents(), "", covered)
        for name, covered in (("lost-tail", True), ("reorder", False))
    )
    assert Verdict(status="violated", anomalies=(bare, covered)).broken == (bare,)
    assert Verdict(status="violated", anomalies=(covered,)).broken == (covered,)
    assert Verdict(status="documented-loss", anomalies=(covered,)).broken == ()


@pytest.mark.parametrize(
    ("fault", "healed_first", "status"),
    [
        ("isolate-primary", False, "documented-loss"),
        ("isolate-primary", True, "violated"),  # nobody answers beside the primary any more
        ("node-kill", False, "violated"),  # nor here: the old one is dead
    ],
)
def test_an_old_primary_gives_old_answers_while_there_are_two(
    fault: str, healed_first: bool, status: str
) -> None:
    script = written(engine="redis-cluster", fault=fault)
    script.inject(fault)
    script.append(1)
    if healed_first:
        script.heal(fault)
    script.read(2, 0, 1, 2)
    if not healed_first:
        script.heal(fault)
    script.read(2, 0, 1, 2, 3)
    assert script.names() == ["stale-read"]
    assert script.verdict().status == status


@pytest.mark.parametrize(("passed_s", "status"), [(1.0, "documented-loss"), (6.0, "violated")])
def test_what_was_acknowledged_long_before_is_known_to_both(passed_s: float, status: str) -> None:
    script = written(engine="redis-cluster", fault="isolate-primary")
    script.wait(passed_s)
    script.inject("isolate-primary")
    script.append(1)
    script.read(2, 3)
    script.heal("isolate-primary")
    script.read(2, 0, 1, 2, 3)
    assert script.names() == ["stale-read"]
    assert script.verdict().status == status


@pytest.mark.parametrize(
    ("engine", "policy", "variant", "status"),
    [
        ("redis-cluster", "aof-everysec", "", "violated"),
        ("redis-cluster", "aof-everysec", "force", "documented-loss"),
        ("redis-cluster", "aof-everysec", "takeover", "documented-loss"),
        (
            "redis-cluster",
            "aof-everysec",
            None,
            "documented-loss",
        ),  # an earlier release did not write it down
        ("postgres-ha", "asynchronous", "", "violated"),
        ("postgres-ha", "asynchronous", "force", "documented-loss"),
        ("postgres-ha", "any-1", "", "violated"),
        ("postgres-ha", "any-1", "force", "documented-loss"),  # the other standby goes on acknowledging
        ("postgres-ha", "first-2", "force", "violated"),
        ("patroni", "asynchronous", "", "violated"),
        ("redis", "aof-always", "", "documented-loss"),  # one server: its replica had stopped following
    ],
)
def test_a_failover_by_agreement_excuses_no_loss(
    engine: str, policy: str, variant: str | None, status: str
) -> None:
    script = written(engine=engine, policy=policy, fault="failover", variant=variant)
    script.crash("failover")
    script.read(2, 0, 1)
    assert script.names() == ["lost-tail"]
    assert script.verdict().status == status


@pytest.mark.parametrize("variant", ["", "force", None])
def test_a_failover_that_loses_nothing_held(variant: str | None) -> None:
    script = written(engine="redis-cluster", fault="failover", variant=variant)
    script.crash("failover")
    script.read(2, 0, 1, 2)
    assert script.verdict().status == "held"
