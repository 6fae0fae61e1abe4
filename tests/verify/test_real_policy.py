"""A store is judged by what its own connections have, not by what its cell is called."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import Queue

import pytest

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.results import Result
from recollect.verify.matrix.same_setting import ran_before
from recollect.verify.running.real_policy import real_policy
from recollect.verify.running.scenario import Scenario
from recollect.verify.target import real_settings


def sqlite(journal_mode: str, synchronous: int) -> dict[str, str]:
    return {"journal_mode": journal_mode, "synchronous": str(synchronous)}


@pytest.mark.parametrize(
    ("settings", "real"),
    [
        ([], "delete-extra"),
        ([sqlite("delete", 2)], "delete-full"),
        ([sqlite("truncate", 2)], "delete-full"),
        ([sqlite("delete", 3)], "delete-extra"),
        ([sqlite("wal", 2)], "wal-full"),
        ([sqlite("wal", 3)], "wal-full"),
        ([sqlite("wal", 1), sqlite("wal", 2)], "wal-normal"),
        ([sqlite("wal", 0)], "delete-extra"),
        ([sqlite("wal", 0), sqlite("wal", 2)], "delete-extra"),
    ],
)
def test_the_weakest_connection_decides(settings: list[dict[str, str]], real: str) -> None:
    assert real_policy("sqlite", "delete-extra", settings) == real


@pytest.mark.parametrize(
    ("policy", "said", "real"),
    [
        ("async-commit", ["on"], "default"),
        ("default", ["off"], "async-commit"),
        ("default", ["on", "off"], "async-commit"),
        ("async-commit", [], "async-commit"),
        ("fsync-off", ["on"], "fsync-off"),
        ("custom", ["off"], "custom"),
    ],
)
def test_sessions_of_postgres(policy: str, said: list[str], real: str) -> None:
    settings = [{"synchronous_commit": each} for each in said]
    assert real_policy("postgres", policy, settings) == real


def endpoint(path: Path) -> Endpoint:
    return Endpoint(f"sqlite:///{path}", "sqlite", "sqlite", "", "wal-full", "", path=path)


def asked(path: Path) -> list[dict[str, str]]:
    return asyncio.run(real_settings.read_back(endpoint(path)))


def test_open_connections_are_asked(tmp_path: Path) -> None:
    with real_settings.remembering():
        with (
            closing(sqlite3.connect(tmp_path / "memory.db")) as store,
            closing(sqlite3.connect(tmp_path / "other.db")) as other,
        ):
            store.row_factory = sqlite3.Row
            store.text_factory = bytes
            store.execute("PRAGMA journal_mode=WAL")
            store.execute("PRAGMA synchronous=NORMAL")
            other.execute("PRAGMA synchronous=OFF")
            assert asked(tmp_path / "memory.db") == [sqlite("wal", 1)]


def test_connections_that_are_closed_again_were_asked(tmp_path: Path) -> None:
    with real_settings.remembering():
        with closing(sqlite3.connect(tmp_path / "memory.db")) as store:
            store.execute("PRAGMA synchronous=EXTRA")
        assert asked(tmp_path / "memory.db") == [sqlite("delete", 3)]


def test_afterwards_nothing_is_remembered(tmp_path: Path) -> None:
    before = sqlite3.connect
    with real_settings.remembering():
        assert sqlite3.connect is not before
    assert sqlite3.connect is before
    with closing(sqlite3.connect(tmp_path / "memory.db")) as store:
        store.execute("PRAGMA journal_mode=WAL")
        assert asked(tmp_path / "memory.db") == []


def cell(policy: str, fault: str = "power-loss") -> Scenario:
    return Scenario(target="m:f", engine="sqlite", policy=policy, fault=fault, workload="turns", seed=1)


def ran(policy: str, real: str, fault: str = "power-loss", status: str = "held") -> Result:
    verdict = Verdict(status=status)  # type: ignore[arg-type]
    return Result(scenario=cell(policy, fault), verdict=verdict, real_policy=real)


def test_what_is_really_the_same_is_run_once() -> None:
    known = [ran("wal-full", ""), ran("wal-normal", "wal-full", fault="kill-engine")]
    why = ran_before(cell("wal-normal"), known)
    assert why is not None
    assert why.startswith("the same as wal-full")


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        ([ran("wal-full", "")], cell("wal-normal")),
        ([ran("wal-full", ""), ran("wal-normal", "", "kill-engine")], cell("wal-normal")),
        ([ran("wal-full", "", status="unknown"), ran("wal-normal", "wal-full", "cut")], cell("wal-normal")),
        ([ran("wal-normal", "wal-full", "cut")], cell("wal-normal")),
        ([ran("wal-full", "")], cell("wal-full")),
        (
            [ran("wal-full", "", "policy-change"), ran("wal-normal", "wal-full")],
            cell("wal-normal", "policy-change"),
        ),
    ],
    ids=["not known yet", "another setting", "not concluded", "not run yet", "a replay", "changes it itself"],
)
def test_everything_else_is_run(known: list[Result], wanted: Scenario) -> None:
    assert ran_before(wanted, known) is None


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_scratch_file_has_the_journal_mode_of_the_real_one_and_leaves_it_alone(
    tmp_path: Path, mode: str
) -> None:
    real, apart = tmp_path / "memory.db", tmp_path / "apart"
    apart.mkdir()
    with closing(sqlite3.connect(real)) as db:
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("CREATE TABLE said (content TEXT)")
    found = real_settings.scratch(endpoint(real), apart)
    assert found is not None
    assert found.path == apart / "memory.db"
    with closing(sqlite3.connect(found.path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchall() == [(mode,)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["apart", "memory.db"]


def test_a_connection_of_another_thread_is_asked_there(tmp_path: Path) -> None:
    jobs: Queue[Callable[[], object] | None] = Queue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()
            jobs.task_done()

    thread = threading.Thread(target=work)
    thread.start()
    made: list[sqlite3.Connection] = []
    with real_settings.remembering():
        jobs.put(lambda: made.append(sqlite3.connect(tmp_path / "memory.db")))
        jobs.put(lambda: made[0].execute("PRAGMA journal_mode=WAL"))
        jobs.put(lambda: made[0].execute("PRAGMA synchronous=NORMAL"))
        jobs.join()
        assert asked(tmp_path / "memory.db") == [sqlite("wal", 1)]
    jobs.put(lambda: made[0].close())
    jobs.put(None)
    thread.join()
