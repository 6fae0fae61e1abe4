"""Addresses, and what opening costs."""

import socket
import subprocess
import sys
from typing import Any

import pytest

from recollect import CannotOpen, EngineUnavailable, Refused, open_store, sync

DRIVERS = ("redis", "asyncpg", "sqlalchemy", "alembic", "chromadb", "sqlite3", "typer", "rich", "asyncio")


def test_importing_recollect_imports_no_driver() -> None:
    """Beyond what the interpreter itself has at its start: measuring coverage brings sqlite3."""
    code = (
        "import sys; before = set(sys.modules); import recollect; "
        f"print([name for name in {DRIVERS} if name in set(sys.modules) - before])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("url", ["mysql://host/db", "memory.db", "", "/absolute/path"])
async def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(CannotOpen, match=r"sqlite:///memory\.db"):
        await open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@nowhere.invalid",
        "postgresql://user:secret@nowhere.invalid/memory",
        "postgresql://user:secret@nowhere.invalid,nowhere.invalid:7/memory",
        "postgresql:///memory?user=user&password=secret&host=nowhere.invalid",
    ],
)
async def test_a_host_that_does_not_exist_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(EngineUnavailable, match=r"nowhere\.invalid.*Name or service not known") as error:
        await open_store(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://user:secret@localhost:1/memory", "localhost:1: "),
        ("postgresql://user:secret@127.0.0.1:1,127.0.0.1:1/memory", "127.0.0.1:1: "),
        ("postgresql://user:secret@/memory?host=/no/such", "/no/such:5432: "),
    ],
)
async def test_an_address_where_nobody_answers_is_named_as_it_was_given(url: str, place: str) -> None:
    with pytest.raises(EngineUnavailable) as error:
        await open_store(url)
    assert str(error.value).startswith(f"PostgreSQL: {place}")
    assert "secret" not in str(error.value)


def test_a_missing_driver_names_the_extra() -> None:
    code = """
import asyncio, sys
sys.modules["redis"] = None  # as if it were not installed
from recollect import MissingExtra, open_store
async def main():
    try:
        await open_store("redis://localhost")
    except MissingExtra as error:
        print(error)
asyncio.run(main())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'recollect[redis]'" in found.stdout


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://", "sqlite:///relative.db"),
        ("sqlite://host/path.db", "sqlite:///relative.db"),
        ("sqlite:///:memory:", "forgotten"),
        ("sqlite:////no/such/folder/memory.db", "does not exist"),
    ],
)
async def test_bad_sqlite_addresses_say_what_to_write(url: str, says: str) -> None:
    with pytest.raises(CannotOpen, match=says):
        await open_store(url)


@pytest.mark.parametrize("query", ["policy=wal-ful", "polcy=wal-full"])
async def test_unknown_sqlite_parameters_are_refused(query: str, tmp_path: object) -> None:
    with pytest.raises(Refused, match="wal-full"):
        await open_store(f"sqlite:///{tmp_path}/m.db?{query}")


@pytest.mark.parametrize("opener", [open_store, sync.open_store])
def test_options_are_checked_where_they_are_kept(opener: Any) -> None:
    with pytest.raises(Refused, match=r"ttl: a timedelta, such as timedelta\(days=7\), or None; not 3600"):
        opener("sqlite:///never.db", ttl=3600)
    with pytest.raises(TypeError, match="no option 'durabilty'; it has durability, replicas"):
        opener("sqlite:///never.db", durabilty="fsynced")
    with pytest.raises(Refused, match="durability: one of 'buffered', 'written', 'fsynced', not 'safe'"):
        opener("sqlite:///never.db", durability="safe")
