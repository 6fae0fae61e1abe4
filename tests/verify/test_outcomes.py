"""What an error says about whether a write took effect."""

import sqlite3

import asyncpg
import pytest
import redis

from recollect import Conflict, EngineUnavailable, NotWritten, OutcomeUnknown, Refused
from recollect.verify import outcomes


@pytest.mark.parametrize(
    ("error", "write", "read"),
    [
        (NotWritten("no"), "fail", "unknown"),
        (Conflict("s", 1, 2), "fail", "unknown"),
        (Refused("no"), "fail", "fail"),
        (OutcomeUnknown("?"), "unknown", "unknown"),
        (EngineUnavailable("no"), "fail", "unknown"),
        (ConnectionRefusedError(111, "refused"), "unknown", "unknown"),
        (ConnectionResetError(104, "reset"), "unknown", "unknown"),
        (TimeoutError(), "unknown", "unknown"),
        (redis.exceptions.ResponseError("OOM"), "fail", "fail"),
        (redis.exceptions.ReadOnlyError("READONLY"), "unknown", "fail"),
        (redis.exceptions.ConnectionError("Connection closed by server."), "unknown", "unknown"),
        (
            redis.exceptions.ConnectionError("Error 111 connecting to localhost:1. Connection refused."),
            "unknown",
            "unknown",
        ),
        (redis.exceptions.TimeoutError("Timeout reading"), "unknown", "unknown"),
        (asyncpg.exceptions.UniqueViolationError("dup"), "fail", "fail"),
        (asyncpg.exceptions.AdminShutdownError("down"), "unknown", "unknown"),
        (asyncpg.exceptions.ConnectionDoesNotExistError("gone"), "unknown", "unknown"),
        (asyncpg.exceptions.TooManyConnectionsError("full"), "fail", "unknown"),
        (KeyError("role"), "unknown", "fail"),
        (ValueError("'tool' is not a valid Role"), "unknown", "fail"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_the_table(error: Exception, write: str, read: str) -> None:
    assert outcomes.of_write(error) == write
    assert outcomes.of_read(error) == read


def test_sqlite_errors_are_told_apart_by_their_text(tmp_path: object) -> None:
    assert outcomes.of_write(sqlite3.OperationalError("database is locked")) == "fail"
    assert outcomes.of_write(sqlite3.OperationalError("database or disk is full")) == "fail"
    assert outcomes.of_write(sqlite3.OperationalError("disk I/O error")) == "unknown"


def test_a_wrapped_error_counts_as_what_it_wraps() -> None:
    wrapped = RuntimeError("the session failed")
    wrapped.__cause__ = redis.exceptions.ResponseError("OOM")
    assert outcomes.of_write(wrapped) == "fail"
    wrapped.__cause__ = None
    wrapped.orig = sqlite3.IntegrityError("dup")  # type: ignore[attr-defined]
    assert outcomes.of_write(wrapped) == "fail"
