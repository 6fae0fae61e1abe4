"""Two faults at once: which can be combined, in which order they heal, and what the engine promises under both."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import build
from recollect.guarantees import promise
from recollect.verify.judging.history import History
from recollect.verify.judging.verdict import Anomaly, Verdict, WitnessEvents
from recollect.verify.matrix.findings import findings
from recollect.verify.matrix.results import Result, Results
from recollect.verify.matrix.selection import VerifyRequest, select
from recollect.verify.matrix.target_probe import OUR_ABILITIES
from recollect.verify.running.faults import FAULTS, fault_named
from recollect.verify.running.faults.compound import FAMILIES, PAIRS
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from tests.checkers.history_script import Script
from tests.faults.cells import our_cell


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("kill-engine+latancy", "unknown fault 'latancy'"),
        ("kill-engine+power-loss", "power-loss cannot be combined"),
        ("latency+cut", "take hold of the same network"),
        ("failover+latency", "latency cannot happen together with failover"),
        ("kill-engine+latency+clock-back", "two faults at once, not 3"),
        ("kill-engine+", "a fault is missing after the +"),
        ("+latency", "a fault is missing before the +"),
        ("kill-engine+latency@sometimes", "unknown variant 'sometimes'"),
        ("kill-engine@bgsave+latency", "a part has no variant"),
    ],
)
def test_what_cannot_be_combined_is_exit_code_2_and_named(fault: str, says: str) -> None:
    words = ["verify", "redis", "--fault", fault]
    done = CliRunner().invoke(build(words), words)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_the_table_of_pairs_can_run() -> None:
    assert set(FAMILIES) <= set(FAULTS)
    for name in PAIRS:
        fault = fault_named(name)
        assert fault.variants
        assert all(variant.removesuffix("-lasts") in name.split("+") for variant in fault.variants)


def test_the_obstacle_names_the_part() -> None:
    scenario = our_cell("sqlite", "kill-engine+latency")
    assert (fault_named(scenario.fault).obstacle(scenario) or "").startswith("latency: ")


@pytest.mark.parametrize(
    ("engine", "policy", "fault", "allows", "window_s"),
    [
        ("redis", "aof-always", "kill-engine+latency", set(), 0.0),
        ("redis", "aof-everysec", "kill-engine+latency", {"lost-tail", "non-monotonic-read"}, 2.0),
        ("postgres", "async-commit", "clock-back+kill-engine", {"lost-tail", "non-monotonic-read"}, 0.6),
    ],
)
def test_the_promise_is_the_weaker_of_the_two(
    engine: str, policy: str, fault: str, allows: set[str], window_s: float
) -> None:
    found = promise(engine, policy, fault)
    assert (set(found.allows), found.window_s) == (allows, window_s)
    assert found.fault == fault


def test_an_unbounded_loss_of_one_is_unbounded_under_both() -> None:
    assert promise("redis", "aof-always", "failover+kill-app").window_s is None


def order_of(folder: Path) -> list[str]:
    return [
        f"{event.kind.removeprefix('fault-')} {event.operation}"
        for event in History(folder / "history.jsonl")
        if event.kind in ("fault-injected", "fault-healed")
    ]


@pytest.mark.parametrize(
    ("lasting", "other"),
    [
        ("latency", "kill-engine"),
        ("kill-engine", "latency"),
        ("kill-engine", "clock-back"),
        ("pause", "clock-forward"),
    ],
)
def test_both_are_active_and_healed_in_either_order(lasting: str, other: str, tmp_path: Path) -> None:
    name = "kill-engine+latency" if "latency" in (lasting, other) else f"{lasting}+{other}"
    scenario = our_cell("redis", name, variant=f"{lasting}-lasts")
    verdict = Run(scenario, tmp_path).execute()
    assert verdict.status == "held", verdict.reason
    assert order_of(tmp_path) == [
        f"injected {lasting}",
        f"injected {other}",
        f"healed {other}",
        f"healed {lasting}",
    ]


def test_a_process_dies_while_a_standby_takes_over(tmp_path: Path) -> None:
    scenario = Scenario(
        target="postgres",
        engine="postgres-ha",
        policy="first-2",
        fault="failover+kill-app",
        variant="failover-lasts",
        seed=1,
    )
    verdict = Run(scenario, tmp_path).execute()
    assert verdict.status == "held", verdict.reason
    order = order_of(tmp_path)
    assert (
        order.index("injected failover") < order.index("injected kill-app") < order.index("healed failover")
    )


def test_a_part_that_did_not_strike_proves_nothing() -> None:
    script = Script(policy="aof-always", fault="kill-engine+latency")
    script.append(1)
    script.crash("kill-engine")
    script.read(2, 0)
    verdict = script.verdict()
    assert (verdict.status, verdict.reason) == ("unknown", "the fault latency was never injected")


def test_the_parts_run_too_and_come_first() -> None:
    request = VerifyRequest(targets=("redis",), faults=("kill-engine+latency",), policies=("aof-always",))
    cells = select(request, {"redis": frozenset(OUR_ABILITIES["redis"])})
    assert [cell.scenario.fault for cell in cells] == ["kill-engine", "latency", "kill-engine+latency"]


def test_what_a_part_shows_alone_is_no_finding_of_the_pair() -> None:
    def cell(fault: str, name: str) -> Result:
        anomaly = Anomaly(name, 1, True, WitnessEvents(), f"{name} under {fault}")
        scenario = Scenario(target="t", engine="redis", policy="aof-always", fault=fault, workload="turns")
        return Result(
            scenario=scenario, verdict=Verdict(status="violated", anomalies=(anomaly,)), folder=fault
        )

    pair = "kill-engine+latency"
    (one,) = findings(Results(results=(cell(pair, "lost-tail"), cell("kill-engine", "lost-tail"))))
    assert one.sentence == "lost-tail under kill-engine"
    two = findings(Results(results=(cell("kill-engine", "lost-tail"), cell(pair, "duplicate"))))
    assert {found.sentence for found in two} == {f"duplicate under {pair}", "lost-tail under kill-engine"}
