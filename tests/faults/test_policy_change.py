"""Another policy on the same data: what it empties is an error to whoever keeps a witness, and violated otherwise."""

from pathlib import Path

import pytest

from recollect.verify.running.scenario import Scenario
from tests.faults.cells import run_cell

OPENS_EMPTY = "tests.planted.opens_empty:factory"


def changed(target: str, policy: str, fault: str = "policy-change") -> Scenario:
    return Scenario(target=target, engine="redis", policy=policy, fault=fault, workload="turns", seed=2)


def test_a_memory_that_comes_back_empty_without_a_word_is_exposed(tmp_path: Path) -> None:
    verdict = run_cell(changed(OPENS_EMPTY, "rdb"), tmp_path)
    assert verdict.status == "exposed", verdict
    names = {anomaly.name: anomaly.silent for anomaly in verdict.anomalies}
    assert names["silent-reset"] is True
    assert verdict.lost > 0


def test_a_store_with_a_witness_says_so(tmp_path: Path) -> None:
    verdict = run_cell(changed("redis", "rdb"), tmp_path)
    assert verdict.status == "documented-loss", verdict
    (anomaly,) = verdict.anomalies
    assert (anomaly.name, anomaly.silent) == ("unreadable", False)
    assert "StoreReplaced" in anomaly.sentence
    assert verdict.kept == 0, "what cannot be read is not kept"
    assert verdict.account == f"{verdict.acked:,} of {verdict.acked:,} not read back"


@pytest.mark.parametrize("policy", ["aof-everysec", "aof-always"])
def test_another_fsync_of_the_same_file_keeps_everything(policy: str, tmp_path: Path) -> None:
    verdict = run_cell(changed("redis", policy), tmp_path)
    assert (verdict.status, verdict.lost) == ("held", 0), verdict


def test_a_store_on_sqlite_is_told_the_settings_of_the_new_policy(tmp_path: Path) -> None:
    scenario = Scenario(
        target="tests.faults.pragmas:factory",
        engine="sqlite",
        policy="wal-full",
        fault="policy-change",
        workload="turns",
        seed=2,
    )
    verdict = run_cell(scenario, tmp_path)
    assert (verdict.status, verdict.lost) == ("held", 0), verdict
    told = (tmp_path / "target.log").read_text().splitlines()
    witness = f"the witness is at {tmp_path / 'witness.json'}"
    assert told[0] == f"journal_mode is wal, {witness}"
    assert told[-1] == f"journal_mode is delete, {witness}", "as `delete-extra` has it"
