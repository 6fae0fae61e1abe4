"""The movable clock in a process and in engines, and clock faults on our stores."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.verify import clock, engines
from recollect.verify.clock import Clock
from recollect.verify.host.waiting import wait_until
from recollect.verify.judging.history import History
from recollect.verify.judging.op import FaultDetail
from recollect.verify.running.faults import FAULTS
from recollect.verify.running.faults import clock as clock_faults
from recollect.verify.running.faults.clock import BACK_S, VARIANTS
from recollect.verify.running.scenario import Scenario
from recollect.verify.wire import pgwire, resp
from tests.faults.cells import WEEK_S, our_cell, run_cell

STORES = ("sqlite", "redis", "postgres")
NEAR_S = 30.0

PROGRAM = """
import ctypes, datetime, sys, time
libc = ctypes.CDLL(None)
for line in sys.stdin:
    print(time.time(), datetime.datetime.now().timestamp(), libc.time(None), time.monotonic(), flush=True)
"""


class Asked:
    """A program that tells what its clocks show."""

    def __init__(self, moved: Clock) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=moved.env(),
        )

    def shows(self) -> list[float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def offsets(self) -> list[float]:
        """How far each of its wall clocks is from ours."""
        return [shown - time.time() for shown in self.shows()[:3]]

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture
def moved() -> Iterator[Clock]:
    moved = Clock()
    yield moved
    moved.close()
    assert not moved.control.exists()


@pytest.fixture
def asked(moved: Clock) -> Iterator[Asked]:
    asked = Asked(moved)
    yield asked
    asked.close()


def near(found: float, expected: float) -> bool:
    return abs(found - expected) < NEAR_S


def test_every_wall_clock_moves_and_comes_back(moved: Clock, asked: Asked) -> None:
    for offset_s in (0.0, WEEK_S, -BACK_S, 0.0):
        moved.move(offset_s)
        assert all(near(found, offset_s) for found in asked.offsets())
        assert near(moved.offset_s, offset_s)


def test_the_monotonic_clock_goes_on(moved: Clock, asked: Asked) -> None:
    shown = []
    for offset_s in (0.0, WEEK_S, -WEEK_S):
        moved.move(offset_s)
        shown.append(asked.shows()[3])
    moved.freeze()
    shown += [asked.shows()[3], asked.shows()[3], time.monotonic()]
    assert shown == sorted(shown)
    assert len(set(shown)) == len(shown)
    assert shown[-1] - shown[0] < NEAR_S


def test_a_frozen_clock_stands_still(moved: Clock, asked: Asked) -> None:
    moved.move(-BACK_S)
    moved.freeze()
    assert asked.shows()[:3] == asked.shows()[:3]
    assert near(asked.offsets()[0], -BACK_S)
    moved.heal()
    assert near(asked.offsets()[0], 0.0)
    assert asked.shows()[0] < asked.shows()[0]


def test_this_process_is_not_touched(moved: Clock) -> None:
    before = time.time()
    moved.move(WEEK_S)
    assert near(time.time(), before)


def test_obeying_without_the_preload_is_an_error(moved: Clock) -> None:
    with pytest.raises(RuntimeError, match="not loaded into this process"):
        clock.obey(str(moved.control))


# ---- engines


def test_redis_expires_by_the_moved_clock_and_stays_healthy(moved: Clock) -> None:
    engine = engines.create("redis", "aof-always")
    try:
        engine.start(moved.env())
        address = engine.address  # type: ignore[attr-defined]
        with resp.Connection(address) as connection:
            connection.ask("SET", "short", "x", "EX", "300")
            connection.ask("SET", "unread", "x", "EX", "300")
            connection.ask("SET", "kept", "x")
            moved.move(WEEK_S)
            assert connection.ask("GET", "short") is None
            wait_until(lambda: connection.ask("DBSIZE") == 1, 10, "the key that nobody reads was not expired")
            assert connection.ask("GET", "kept") == "x"
            moved.move(-WEEK_S)
            assert connection.ask("SET", "after", "x") == "OK"
            moved.heal()
            assert connection.ask("GET", "after") == "x"
        assert engine.alive()
        engine.restart()
    finally:
        engine.close()


def test_postgres_stays_healthy_while_its_clock_leaps(moved: Clock) -> None:
    engine = engines.create("postgres", "default")
    try:
        engine.start(moved.env())
        with pgwire.Connection(engine.address) as connection:  # type: ignore[attr-defined]
            connection.ask("CREATE TABLE t (at timestamptz DEFAULT clock_timestamp())")
            for offset_s in (WEEK_S, -WEEK_S, 0.0):
                moved.move(offset_s)
                connection.ask("SET statement_timeout = '20s'; INSERT INTO t DEFAULT VALUES")
                connection.ask("CHECKPOINT")
            spread = connection.value("SELECT extract(epoch FROM max(at) - min(at)) FROM t")
            assert near(float(spread or "nan"), 2 * WEEK_S)
        assert engine.alive()
        engine.restart()
    finally:
        engine.close()


# ---- our stores


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("fault", ["clock-back", "clock-forward"])
def test_order_and_memory_do_not_depend_on_clocks(store: str, fault: str, tmp_path: Path) -> None:
    verdict = run_cell(our_cell(store, fault), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)


def test_a_frozen_clock_is_survived(tmp_path: Path) -> None:
    verdict = run_cell(our_cell("redis", "clock-frozen"), tmp_path)
    assert verdict.status == "held", (verdict.reason, verdict.anomalies)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_history_says_how_far_the_engines_clock_was(variant: str, tmp_path: Path) -> None:
    run_cell(our_cell("redis", "clock-back", variant=variant), tmp_path)
    values = [event.value for event in History(tmp_path / "history.jsonl") if event.kind == "fault-injected"]
    expected = 0.0 if variant == "target" else -BACK_S
    assert [value.offset_s for value in values if isinstance(value, FaultDetail)] == [expected]


# ---- where it cannot be done


def test_an_embedded_engine_has_only_the_targets_clock() -> None:
    obstacle = FAULTS["clock-back"].obstacle
    assert obstacle(our_cell("sqlite", "clock-back", variant="both")) is None
    assert obstacle(our_cell("sqlite", "clock-back", variant="target")) is None
    assert "inside the target's process" in str(obstacle(our_cell("sqlite", "clock-back", variant="engine")))


@pytest.mark.parametrize("where", [{"provider": "docker"}, {"provider": "compose:file#redis"}])
def test_a_container_that_nothing_can_be_mounted_into_is_a_reason(
    where: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from recollect.verify import providers
    from recollect.verify.providers import docker
    from recollect.verify.providers.build import Build

    monkeypatch.setattr(providers, "find", lambda *_: Build("redis", "Redis", "7", "docker", "redis:7"))
    monkeypatch.setattr(docker, "unmountable", lambda: "nothing can be mounted into its container")
    obstacle = FAULTS["clock-back"].obstacle
    assert "container" in str(obstacle(our_cell("redis", "clock-back", variant="engine", **where)))
    assert obstacle(our_cell("redis", "clock-back", variant="target", **where)) is None


def test_an_engine_of_the_user_is_a_reason() -> None:
    obstacle = FAULTS["clock-forward"].obstacle
    yours = our_cell("redis", "clock-forward", url="redis://somewhere:6379/15")
    assert "yours" in str(obstacle(yours))


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "unavailable", lambda: "there is no C compiler")
    assert FAULTS["clock-back"].obstacle(our_cell("redis", "clock-back")) == "there is no C compiler"


@pytest.mark.parametrize("fault", ["clock-back", "clock-frozen"])
def test_a_preload_that_did_not_take_is_found_out(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clock, "env", lambda *_: {})
    monkeypatch.setattr(clock_faults, "MOVED_TIMEOUT_S", 0.05)
    verdict = run_cell(our_cell("redis", fault, variant="engine"), tmp_path)
    assert verdict.status == "unknown"
    assert "does not reach it" in str(verdict.reason)


@pytest.mark.parametrize(
    ("retain_s", "status", "names"), [(None, "held", set()), (WEEK_S, "violated", {"expired-early"})]
)
def test_a_declared_life_is_kept_and_excuses_nothing_that_was_asked_for(
    retain_s: float | None, status: str, names: set[str], tmp_path: Path
) -> None:
    target = "tests.faults.declared_life:factory"
    cell = Scenario(
        target=target, engine="redis", policy="aof-always", fault="clock-forward", seed=3, retain_s=retain_s
    )
    verdict = run_cell(cell, tmp_path)
    assert (verdict.status, {anomaly.name for anomaly in verdict.anomalies}) == (status, names), verdict
