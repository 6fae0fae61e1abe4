"""Which cells a request has."""

import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recollect.guarantees import FAULTS as EVERY_FAULT
from recollect.secret import SecretUrl
from recollect.verify.matrix.selection import BadRequest, VerifyRequest, by_engine, check, select
from recollect.verify.matrix.target_probe import OUR_ABILITIES
from recollect.verify.running.faults import FAULTS
from recollect.verify.target.registry import BUILT_IN

ALL = OUR_ABILITIES


def test_the_core_tier_has_at_least_sixty_cells_that_can_run() -> None:
    cells = select(VerifyRequest(targets=tuple(BUILT_IN), overview=True), ALL)
    assert sum(cell.skipped is None for cell in cells) >= 60
    names = [cell.scenario.name for cell in cells]
    assert len(names) == len(set(names))


def test_an_overview_shows_a_part_of_chroma_and_a_request_for_it_all() -> None:
    overview = select(VerifyRequest(targets=tuple(BUILT_IN), overview=True), ALL)
    brief = {
        (cell.scenario.policy, cell.scenario.fault) for cell in overview if cell.scenario.engine == "chroma"
    }
    assert {fault for _, fault in brief} >= {"power-loss", "slow-fsync", "fsync-error", "disk-full"}
    named = select(VerifyRequest(targets=("chroma",)), ALL)
    assert brief < {(cell.scenario.policy, cell.scenario.fault) for cell in named}
    assert {cell.scenario.policy for cell in named} == {"server", "embedded"}
    assert {cell.scenario.writers for cell in named if cell.scenario.variant == "several-writers"} == {3, 4}


def test_the_first_cells_are_those_that_nothing_happens_to() -> None:
    cells = [cell for cell in select(VerifyRequest(targets=("redis",)), ALL) if cell.skipped is None]
    bare = [cell.scenario for cell in cells if cell.scenario.fault == "none"]
    assert bare == [cell.scenario for cell in cells[: len(bare)]]
    order = list(dict.fromkeys(scenario.variant for scenario in bare))
    assert order == ["one-writer", "several-writers", "several-callers"]
    plain = ["turns", "rewrite", "search"]
    hard = [scenario.workload not in plain for scenario in bare]
    assert hard == sorted(hard), "plain use by one and by several comes before what is hard"
    assert {scenario.workload for scenario in bare} >= {"turns", "mixed", "trimmed", "forget"}
    assert {scenario.writers for scenario in bare if scenario.variant == "one-writer"} == {1}


@pytest.mark.parametrize(
    ("engine", "fault"), [("redis", "cut"), ("postgres", "cut"), ("sqlite", "disk-full")]
)
def test_one_fault_that_writes_fail_under_meets_several_callers_of_one_store(engine: str, fault: str) -> None:
    def callers(**more: Any) -> list[str]:
        cells = select(VerifyRequest(engine=engine, **more), {"mine:store": ALL["redis"]})
        return [cell.scenario.fault for cell in cells if cell.scenario.variant == "several-callers"]

    assert callers(targets=("mine:store",)).count(fault) == 1
    assert set(callers(targets=("mine:store",))) == {"none", fault}
    assert set(callers(targets=("mine:store",), overview=True)) == {"none"}


def test_where_memory_expires_that_is_the_first_fault() -> None:
    """A budget that is short leaves out the end."""

    def first_fault(abilities: set[str], **more: Any) -> str:
        cells = select(VerifyRequest(targets=("redis",), **more), {"redis": ALL["redis"] | abilities})
        return next(cell.scenario.fault for cell in cells if cell.scenario.fault != "none")

    assert first_fault(set()) == "kill-engine"
    assert first_fault({"expires"}) == "clock-forward"
    assert first_fault(set(), retain_s=3600.0) == "clock-forward"


def test_changes_are_made_without_faults_and_with_those_that_cut_them_off() -> None:
    for target in ("sqlite", "redis", "postgres"):
        cells = select(VerifyRequest(targets=(target,)), ALL)
        changed = {cell.scenario.fault for cell in cells if cell.scenario.workload == "changes"}
        assert changed == {"none", "kill-app", "kill-app-at-line", "power-loss"}
        for fault in changed:
            assert any(cell.scenario.workload == "turns" and cell.scenario.fault == fault for cell in cells)
    without = {
        name: abilities - {"retract", "replace", "append_many", "fork", "annotate", "find"}
        for name, abilities in ALL.items()
    }
    assert not any(cell.scenario.workload == "changes" for cell in select(VerifyRequest(), without))
    asked = select(VerifyRequest(targets=("sqlite",), workloads=("changes",)), without)
    assert {cell.skipped for cell in asked} == {
        "workload 'changes' needs annotate or append_many or find or fork or replace or retract of the target"
    }


def test_every_fault_of_the_design_exists_and_says_what_it_does_not_verify() -> None:
    assert set(FAULTS) == set(EVERY_FAULT)
    for fault in FAULTS.values():
        assert len(fault.verifies) > 20
        assert len(fault.does_not_verify) > 10


def test_full_has_every_policy_fault_and_variant() -> None:
    core = select(VerifyRequest(targets=("redis",)), ALL)
    full = select(VerifyRequest(targets=("redis",), full=True), ALL)
    assert len(full) > 3 * len(core)
    assert {cell.scenario.policy for cell in full} >= {
        "none",
        "rdb",
        "aof-no",
        "aof-everysec",
        "aof-always",
        "mixed",
    }
    assert {"bgsave", "bgrewriteaof", "after-snapshot"} <= {cell.scenario.variant for cell in full}


def test_shards_are_disjoint_and_complete() -> None:
    whole = {cell.scenario.name for cell in select(VerifyRequest(targets=("sqlite",)), ALL)}
    parts = [
        {cell.scenario.name for cell in select(VerifyRequest(targets=("sqlite",), shard=(index, 3)), ALL)}
        for index in (1, 2, 3)
    ]
    assert set.union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)


def test_a_cell_that_cannot_run_stays_with_its_reason() -> None:
    cells = select(VerifyRequest(targets=("sqlite",), faults=("pause",)), ALL)
    assert cells
    assert all(cell.skipped and "inside the target's process" in cell.skipped for cell in cells)


@pytest.mark.parametrize(("target", "seen"), [("langchain.lancedb", False), ("langchain.faiss", True)])
def test_faults_that_need_a_recording_are_skipped_where_the_recorder_does_not_see(
    target: str, seen: bool
) -> None:
    request = VerifyRequest(targets=(target,), faults=("power-loss", "disk-full", "kill-engine"))
    cells = select(request, {target: frozenset()})
    why = {cell.scenario.fault: cell.skipped for cell in cells if cell.scenario.policy == "wal-full"}
    assert why["kill-engine"] is None
    for fault in ("power-loss", "disk-full"):
        assert (why[fault] is None) == seen
        assert seen or "does not see" in (why[fault] or "")


def test_an_engine_of_the_user_s_is_never_broken() -> None:
    cells = select(
        VerifyRequest(targets=("redis",), url=SecretUrl("redis://127.0.0.1:6379/15"), full=True), ALL
    )
    runnable = {cell.scenario.fault for cell in cells if cell.skipped is None}
    destroying = {"kill-engine", "restart", "wipe-volume", "evict", "power-loss", "disk-full", "policy-change",
                  "upgrade", "downgrade", "failover", "pause", "pool-exhausted", "slow-fsync"}  # fmt: skip
    assert runnable
    assert not runnable & destroying


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (VerifyRequest(targets=("redis",), faults=("kill-engin",)), "did you mean 'kill-engine'"),
        (VerifyRequest(targets=("redis",), policies=("aof-everysecond",)), "did you mean 'aof-everysec'"),
        (VerifyRequest(targets=("redis",), workloads=("turn",)), "did you mean 'turns'"),
        (VerifyRequest(targets=("myapp:factory",)), "needs --engine"),
        (VerifyRequest(targets=("mem0.histry",)), "did you mean 'mem0.history'"),
        (VerifyRequest(targets=("myapp.memory",)), "or package.module:factory"),
        (VerifyRequest(targets=("redis",), engine="postgres"), "runs on redis"),
        (VerifyRequest(targets=("sqlite",), engine="valkey"), "runs on sqlite"),
        (VerifyRequest(targets=("myapp:factory",), engine="mysql"), "unknown engine 'mysql'"),
        (VerifyRequest(targets=("redis",), provider="dokcer"), "did you mean 'docker'"),
        (VerifyRequest(targets=("redis",), faults=("kill-engine",), variants=("now",)), "known:\\n  bgsave,"),
        (VerifyRequest(targets=("redis",), faults=("kill-engine@now",)), "after-snapshot, between-writes"),
        (VerifyRequest(targets=("redis",), faults=("kill-engin@bgsave",)), "did you mean 'kill-engine'"),
        (VerifyRequest(targets=("redis",), variants=("bgsave",)), "needs the --fault"),
        (VerifyRequest(targets=("redis",), policies=("rdb",), engine_config=__file__), "exclude each other"),
        (
            VerifyRequest(targets=("redis",), policies=("rdb",), url=SecretUrl("redis://127.0.0.1:1/0")),
            "leave --policy out",
        ),
        (
            VerifyRequest(targets=("redis",), policies=("rdb",), provider="compose:compose.yml#redis"),
            "leave --policy out",
        ),
        (VerifyRequest(targets=("redis",), policies=("custom",)), "--engine-config FILE"),
        (VerifyRequest(targets=("redis",), engine_config="/no/such.conf"), "no such file"),
        (VerifyRequest(targets=("redis",), previous_python="/no/such/python"), "not a program"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unknown_names_are_refused_with_the_nearest(request_: VerifyRequest, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        select(request_, ALL)


@pytest.mark.parametrize(
    "own",
    [
        {"provider": "compose:compose.yml#redis"},
        {"url": SecretUrl("redis://127.0.0.1:1/0")},
        {"engine_config": __file__},
    ],
)
def test_the_users_own_settings_are_one_policy(
    own: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("compose.yml").write_text("services: {redis: {image: redis}}")
    cells = select(VerifyRequest(targets=("redis",), **own), ALL)  # type: ignore[arg-type]
    assert {cell.scenario.policy for cell in cells} == {"custom"}


def test_a_fault_may_name_its_variant() -> None:
    request = VerifyRequest(
        targets=("redis",), policies=("aof-always",), faults=("kill-engine@bgsave", "clock-back"), seed=1
    )
    found = [(cell.scenario.fault, cell.scenario.variant) for cell in select(request, ALL)]
    assert found == [("kill-engine", "bgsave"), ("clock-back", "both")]


def test_workloads_fit_what_the_target_can_do() -> None:
    whole_list = {"app:factory": frozenset({"whole-list", "batches"})}
    cells = select(VerifyRequest(targets=("app:factory",), engine="redis"), whole_list)
    assert {cell.scenario.workload for cell in cells} == {"rewrite", "contents", "compact"}


def test_a_workload_that_does_not_fit_the_target_stays_with_its_reason() -> None:
    request = VerifyRequest(
        targets=("sqlite",), policies=("wal-full",), faults=("kill-app",), workloads=("rewrite", "turns")
    )
    told = {cell.scenario.workload: cell.skipped for cell in select(request, ALL)}
    assert told == {"rewrite": "workload 'rewrite' needs whole-list of the target", "turns": None}


def test_several_engines_are_a_request_each() -> None:
    own = VerifyRequest(targets=("app:make",), engines=("redis@6", "redis@7", "redis@6"))
    assert [part.engine for part in by_engine(own)] == ["redis@6", "redis@7"]
    both = VerifyRequest(targets=("redis", "sqlite", "app:make"), engines=("valkey", "redis@7"))
    assert [(part.engine, part.targets) for part in by_engine(both)] == [
        ("valkey", ("redis", "app:make")),
        ("redis@7", ("redis", "app:make")),
        (None, ("sqlite",)),
    ]
    with pytest.raises(BadRequest, match="none of sqlite runs on it"):
        by_engine(VerifyRequest(targets=("sqlite",), engines=("redis@6", "redis@7")))


def test_valkey_has_the_faults_of_redis() -> None:
    request = VerifyRequest(
        targets=("redis",), engine="valkey", faults=("evict", "policy-change", "kill-engine")
    )
    assert {cell.skipped for cell in select(request, ALL)} == {None}


@pytest.mark.parametrize("more", [{"previous": "myapp:last"}, {"previous_python": sys.executable}])
def test_the_other_release_makes_rolling_deploys_possible(more: dict[str, str]) -> None:
    target = "tests.verify.stores:in_file"
    request = VerifyRequest(
        targets=(target,), engine="sqlite", faults=("older-writer",), policies=("wal-full",)
    )
    (without,) = select(request, {target: frozenset()})
    assert "--previous-python" in (without.skipped or "")
    (cell,) = select(msgspec.structs.replace(request, **more), {target: frozenset()})
    assert cell.skipped is None


@pytest.mark.parametrize(
    ("file", "service", "says"),
    [
        (None, "db", "no compose file"),
        ("services: {db: {}, cache: {}}", "", "names no service"),
        (
            "services: {db: {}, cache: {}}",
            "db,cahce",
            "unknown service in compose.yaml 'cahce': did you mean 'cache'",
        ),
        ("services: [", "db", "is no compose file: line 1: "),
        ("", "db", "it has no services"),
        ("- db", "db", "it has no services"),
        ("services: {db: !reset null, cache: {}}", "db,cache", None),
        ("include: [other.yaml]", "db", None),
        ("x-all: &all {db: {}}\nservices: {<<: *all}", "db", None),
    ],
)
def test_a_compose_file_that_cannot_be_meant_is_refused(
    file: str | None, service: str, says: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "compose.yaml"
    if file is not None:
        path.write_text(file)
    request = VerifyRequest(targets=("redis",), provider=f"compose:{path}#{service}")
    if says is None:
        check(request)
    else:
        with pytest.raises(BadRequest, match=f"^--provider: .*{re.escape(says)}"):
            check(request)
