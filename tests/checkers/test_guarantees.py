"""The engines' promises: complete, with sources, and as measured."""

from __future__ import annotations

import pytest

from recollect.guarantees import ENGINES, FAULTS, promise, what_can_be_lost
from recollect.verify.judging.checkers import ANOMALIES

CELLS = [(engine, policy, fault) for engine in ENGINES for policy in ENGINES[engine] for fault in FAULTS]


def test_every_cell_has_a_promise_with_a_source() -> None:
    for engine, policy, fault in CELLS:
        given = promise(engine, policy, fault)
        assert (given.engine, given.policy, given.fault) == (engine, policy, fault)
        assert given.sentence
        assert given.source
        assert given.allows <= set(ANOMALIES)
        assert given.keeps_everything == (not given.allows)
        if given.allows:
            assert given.remedy
        else:
            assert given.window_s == 0.0


def test_all_faults_of_the_design_are_known() -> None:
    assert len(FAULTS) == len(set(FAULTS)) == 43


# What FACTS measured: does the policy lose acknowledged writes on SIGKILL, on power loss?
@pytest.mark.parametrize(
    ("engine", "policy", "kill", "power"),
    [
        ("redis", "none", True, True),
        ("redis", "rdb", True, True),
        ("redis", "aof-everysec", True, True),
        ("redis", "mixed", True, True),
        ("redis", "aof-always", False, False),
        ("redis", "aof-no", False, True),
        ("valkey", "aof-everysec", True, True),
        ("postgres", "default", False, False),
        ("postgres", "async-commit", True, True),
        ("postgres", "fsync-off", False, True),
        ("sqlite", "wal-full", False, False),
        ("sqlite", "wal-normal", False, True),
        ("sqlite", "delete-full", False, True),
        ("sqlite", "delete-extra", False, False),
        ("chroma", "embedded", False, False),
        ("chroma", "server", False, False),
        ("redis", "custom", False, False),
    ],
)
def test_the_table(engine: str, policy: str, kill: bool, power: bool) -> None:
    assert ("lost-tail" in promise(engine, policy, "kill-engine").allows) == kill
    assert ("lost-tail" in promise(engine, policy, "power-loss").allows) == power


LOUD = {"refuses-to-start", "unreadable", "does-not-recover"}


def test_silence_is_never_promised_for_wiped_volumes() -> None:
    for engine in ENGINES:
        allowed = promise(engine, ENGINES[engine][0], "wipe-volume").allows
        assert allowed == LOUD


def test_silence_is_not_promised_for_another_policy_or_version_on_the_same_data() -> None:
    for policy in ("rdb", "aof-always", "aof-everysec", "aof-no", "mixed"):
        for fault in ("policy-change", "downgrade"):
            assert promise("redis", policy, fault).allows == LOUD
    assert "silent-reset" in promise("redis", "none", "policy-change").allows, "every restart empties it"
    assert "silent-reset" in promise("redis", "none", "disk-full").allows, "it ends in a crash"


def test_a_full_disk_ends_in_a_kill() -> None:
    for engine in ENGINES.keys() - {"chroma"}:  # a full disk tears Chroma's index, which is worse than a kill
        for policy in ENGINES[engine]:
            killed, filled = promise(engine, policy, "kill-engine"), promise(engine, policy, "disk-full")
            assert set(killed.allows) <= set(filled.allows), (engine, policy)


def test_no_engine_may_lose_updates_or_duplicate_by_concurrency() -> None:
    for engine, policy, _ in CELLS:
        for fault in ("concurrent-writers", "lost-ack", "latency", "kill-app", "older-writer"):
            assert promise(engine, policy, fault).keeps_everything


def test_min_replicas_bound_what_a_cut_off_primary_loses_and_nothing_else() -> None:
    for engine in ("redis-cluster", "redis-sentinel"):
        for policy in ("min-replicas-lag-10", "min-replicas-lag-1"):
            assert policy.rpartition("-")[2] in promise(engine, policy, "isolate-primary").sentence
            for fault in FAULTS:
                given, bare = promise(engine, policy, fault), promise(engine, "none", fault)
                assert given.allows == bare.allows
                assert given.sentence == bare.sentence or fault in ("isolate-primary", "two-primaries")


def test_what_can_be_lost_is_worst_first_with_a_remedy() -> None:
    assert what_can_be_lost("postgres", "default") == []
    assert what_can_be_lost("redis", "aof-always") == []
    everysec = what_can_be_lost("redis", "aof-everysec")
    assert [found.fault for found in everysec] == ["power-loss", "kill-engine"]
    assert all("appendfsync always" in found.remedy for found in everysec)
    (rdb,) = what_can_be_lost("redis", "rdb")
    assert rdb.window_s is None
    assert "CONFIG SET appendonly yes" in rdb.remedy
    both = what_can_be_lost("postgres", "fsync-off", ("failover", "power-loss", "replica-lag"))
    assert [found.fault for found in both] == ["power-loss", "failover"]


@pytest.mark.parametrize(
    ("engine", "policy", "fault", "message"),
    [
        ("mysql", "default", "cut", "unknown engine 'mysql'; known are redis, postgres"),
        ("redis", "wal-full", "cut", "unknown policy 'wal-full' of redis; known are none, rdb"),
        ("redis", "rdb", "gremlins", "unknown fault 'gremlins'; known are none, restart"),
    ],
)
def test_unknown_names_are_refused(engine: str, policy: str, fault: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        promise(engine, policy, fault)


def test_what_no_setting_changes_holds_for_custom_settings_too() -> None:
    assert promise("redis", "custom", "wipe-volume").allows == promise("redis", "rdb", "wipe-volume").allows
    assert not promise("redis-sentinel", "custom", "failover").allows
    assert not promise("redis", "custom", "power-loss").allows
    for engine, policy, fault in [
        *(("redis", "aof-always", fault) for fault in ("evict", "bit-rot", "policy-change", "failover")),
        *(("postgres", "default", fault) for fault in ("bit-rot", "upgrade", "downgrade", "failover")),
    ]:
        known = promise(engine, policy, fault)
        custom = promise(engine, "custom", fault)
        assert (custom.allows, custom.sentence) == (known.allows, known.sentence)
