"""Databases of released stores, audited: a healthy one is not accused, a broken one is, and neither is changed.

They run in the environment of `make test-named`.
"""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recollect.verify.engines import Engine
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.target.registry import named_targets
from recollect.verify.wire import pgwire, resp
from tests.contract.conftest import engine_of
from tests.doctor.bytes import contents
from tests.verify.named_database import MESSAGES, SESSIONS

__all__ = ["engine_of"]

AUDITED = [name for name, row in named_targets().items() if row.sessions]
CHANGES = "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables ORDER BY 1"


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=300)


def _written(name: str, engine_of: Callable[[str], Engine], tmp_path: Path) -> str:
    """The address of a new database of the store."""
    row = named_targets()[name]
    if row.lacking:
        pytest.skip(f"{name}: run make test-named")
    url = f"sqlite:///{tmp_path}/memory.db"
    if row.kind == "redis":
        url = engine_of("redis").endpoint.url
        with resp.Connection(redis_address(url)) as connection:
            connection.ask("FLUSHALL")
    elif row.kind == "postgres":
        url = engine_of("postgres").endpoint.url
        with pgwire.Connection(postgres_address(url)) as session:
            session.ask("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    done = _run("tests.verify.named_database", name, url)
    assert done.returncode == 0, done.stderr
    return url


def _state(url: str, folder: Path) -> Any:
    if url.startswith("sqlite"):
        return contents(folder)
    if url.startswith("redis"):
        with resp.Connection(redis_address(url)) as connection:
            changes = str(connection.ask("INFO", "persistence"))
            return [line for line in changes.splitlines() if line.startswith("rdb_changes_since")]
    with pgwire.Connection(postgres_address(url)) as session:
        return session.ask(CHANGES)


def _audited(url: str, name: str) -> tuple[int, dict[str, Any]]:
    done = _run("recollect", "audit", url, "--target", name, "--json", "-")
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("name", AUDITED)
def test_a_healthy_database_is_not_accused_and_not_changed(
    name: str, engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    url = _written(name, engine_of, tmp_path)
    before = _state(url, tmp_path)
    code, told = _audited(url, name)
    assert _state(url, tmp_path) == before
    assert code == 0, told
    assert told["counts"] == {}
    assert (told["sessions"], told["messages"]) == (len(SESSIONS), len(SESSIONS) * MESSAGES)
    assert told["target"] == name
    assert told["target_version"]


BROKEN = {
    "agents.sqlite": ("agent_messages", "message_data", "hidden"),
    "agents.async-sqlite": ("agent_messages", "message_data", "hidden"),
    "langchain.sql": ("message_store", "message", "unreadable"),
    "adk.sqlite": ("events", "event_data", "unreadable"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_database_is_told(name: str, engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    """A record that is cut short: one library leaves it out without a word, another raises."""
    url = _written(name, engine_of, tmp_path)
    table, column, anomaly = BROKEN[name]
    with closing(sqlite3.connect(tmp_path / "memory.db")) as hands, hands:
        cut = f"UPDATE {table} SET {column} = substr({column}, 1, 9) WHERE rowid = (SELECT max(rowid) FROM {table})"
        assert hands.execute(cut).rowcount == 1
    code, told = _audited(url, name)
    assert code == 1, told
    assert told["counts"] == {anomaly: 1}
    place = "recollect/somebody/" if name == "adk.sqlite" else ""
    assert [one["session"] for one in told["findings"]] == [place + SESSIONS[-1]]
