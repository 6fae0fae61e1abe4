"""Other versions of the engine: which ones are stepped between, and what becomes of the data."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from recollect.verify.host.errors import EngineError
from recollect.verify.judging.history import History
from recollect.verify.providers import find
from recollect.verify.running.faults import FAULTS
from recollect.verify.running.faults.version_steps import NoStep, VersionStep, step
from recollect.verify.running.scenario import Scenario
from tests.faults.cells import run_cell
from tests.providers.other_chroma import other_chroma


def scenario(engine: str, fault: str, variant: str = "", policy: str = "aof-always") -> Scenario:
    name = engine.partition("@")[0]
    return Scenario(target=name, engine=engine, policy=policy, fault=fault, variant=variant, seed=3)


def has(*specs: str) -> bool:
    try:
        return all(find(spec) for spec in specs)
    except EngineError:
        return False


two_redis = pytest.mark.skipif(not has("redis@6.2", "redis@7"), reason="needs Redis 6.2 and 7")
three_postgres = pytest.mark.skipif(
    not has("postgres@15", "postgres@16", "postgres@18"), reason="needs PostgreSQL 15, 16 and 18"
)


def majors(found: VersionStep) -> tuple[str, str]:
    return found.start.split(".")[0], found.goal.split(".")[0]


@three_postgres
@pytest.mark.parametrize(
    ("engine", "fault", "variant", "versions"),
    [
        ("postgres@15", "upgrade", "", ("15", "16")),
        ("postgres@15", "upgrade", "18", ("15", "18")),
        ("postgres@16", "upgrade", "", ("16", "18")),
        ("postgres@18", "downgrade", "", ("18", "16")),
        ("postgres@18", "downgrade", "15", ("18", "15")),
        ("postgres", "upgrade", "16", ("15", "16")),
        ("postgres", "upgrade", "", ("16", "18")),
        ("postgres", "downgrade", "", ("18", "16")),
    ],
)
def test_the_named_version_is_where_it_starts(
    engine: str, fault: str, variant: str, versions: tuple[str, str]
) -> None:
    assert majors(step(scenario(engine, fault, variant, "default"))) == versions


@two_redis
@pytest.mark.parametrize(
    ("engine", "fault", "variant", "says"),
    [
        ("redis@99", "upgrade", "", "redis@99 is not installed"),
        ("redis@6.2", "downgrade", "", "needs an older Redis than 6.2"),
        ("redis@7", "upgrade", "6.2", "is not newer than 7"),
        ("redis@7", "downgrade", "7", "is not older than 7"),
        ("valkey", "upgrade", "", "no two versions of valkey"),
    ],
)
def test_a_step_that_cannot_be_made_says_what_is_missing(
    engine: str, fault: str, variant: str, says: str
) -> None:
    with pytest.raises(NoStep, match=says):
        step(scenario(engine, fault, variant))
    assert says in (FAULTS[fault].obstacle(scenario(engine, fault, variant)) or "")


def test_chroma_goes_to_the_installed_release_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    installed = find("chroma").version
    with pytest.raises(NoStep, match=f"needs an older Chroma than {installed}"):
        step(scenario("chroma", "upgrade", policy="server"))

    other_chroma(tmp_path, "1.0.20")
    other_chroma(tmp_path, "1.4.1")
    assert step(scenario("chroma", "upgrade", policy="server")) == ("1.4.1", installed)
    assert step(scenario("chroma", "downgrade", policy="server")) == (installed, "1.4.1")
    assert step(scenario("chroma@1.0", "upgrade", policy="server")) == ("1.0.20", "1.4.1")
    assert step(scenario("chroma@1.0", "upgrade", installed, "server")) == ("1.0.20", installed)
    assert "no server" in (FAULTS["upgrade"].obstacle(scenario("chroma", "upgrade", policy="embedded")) or "")


@two_redis
def test_a_run_starts_where_it_was_told_and_says_where_it_went(tmp_path: Path) -> None:
    verdict = run_cell(scenario("redis@6.2", "upgrade"), tmp_path)
    assert (verdict.status, verdict.lost) == ("held", 0), verdict
    history = History(tmp_path / "history.jsonl")
    assert history.header.engine_version.startswith("6.2")
    (struck,) = [event for event in history if event.kind == "fault-injected"]
    assert "6.2.14 to 7" in str(struck.value)


@two_redis
@pytest.mark.parametrize(("engine", "status"), [("redis", "skipped"), ("redis@6.2", "unknown")])
def test_an_upgrade_from_a_version_that_the_store_was_never_meant_for_is_no_evidence(
    engine: str, status: str, tmp_path: Path
) -> None:
    begun = scenario(engine, "upgrade")
    begun = replace(begun, target="tests.planted.correct.needs_redis_7:factory")
    verdict = run_cell(begun, tmp_path)
    assert verdict.status == status, verdict
    assert "needs Redis 7 or newer, not 6.2" in (verdict.reason or "")


@two_redis
def test_an_older_engine_that_refuses_the_newer_one_s_files_does_as_documented(tmp_path: Path) -> None:
    verdict = run_cell(scenario("redis", "downgrade", policy="rdb"), tmp_path)
    assert verdict.status == "documented-loss", verdict
    (anomaly,) = verdict.anomalies
    assert (anomaly.name, anomaly.silent) == ("refuses-to-start", False)
    assert "\n" not in anomaly.sentence
