"""What an error says about whether a write took effect."""

import sqlite3
from pathlib import Path

import asyncpg
import pytest
import redis
import sqlalchemy.exc

from recollect import Conflict, EngineUnavailable, NotWritten, OutcomeUnknown, Refused
from recollect.verify.judging.history import History
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from recollect.verify.target import outcomes
from recollect.verify.target.sent_requests import writes_in


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
        (redis.exceptions.ResponseError("MISCONF"), "fail", "fail"),
        (redis.exceptions.OutOfMemoryError("OOM"), "fail", "fail"),
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
    assert outcomes.of_write(error, only_write=True) == write
    assert outcomes.of_read(error) == read


def test_sqlite_errors_are_told_apart_by_their_text() -> None:
    for text, outcome in (
        ("database is locked", "fail"),
        ("database or disk is full", "fail"),
        ("disk I/O error", "unknown"),
    ):
        assert outcomes.of_write(sqlite3.OperationalError(text), only_write=True) == outcome


def test_a_wrapped_error_counts_as_what_it_wraps() -> None:
    wrapped = RuntimeError("the session failed")
    wrapped.__cause__ = redis.exceptions.ResponseError("OOM")
    assert outcomes.of_write(wrapped, only_write=True) == "fail"
    wrapped.__cause__ = None
    wrapped.orig = sqlite3.IntegrityError("dup")  # type: ignore[attr-defined]
    assert outcomes.of_write(wrapped, only_write=True) == "fail"


def test_what_a_wrapped_error_says_of_a_read() -> None:
    wrapped = sqlalchemy.exc.OperationalError("SELECT", (), sqlite3.OperationalError("no such table: said"))
    assert outcomes.of_read(wrapped) == "fail", "SQLite has answered"
    wrapped = sqlalchemy.exc.OperationalError("SELECT", (), ConnectionRefusedError("nobody there"))
    assert outcomes.of_read(wrapped) == "unknown"


def test_a_refusal_proves_nothing_if_something_else_was_sent_before() -> None:
    for refusal in (
        redis.exceptions.ResponseError("OOM"),
        asyncpg.exceptions.UniqueViolationError("dup"),
        sqlite3.OperationalError("database is locked"),
    ):
        assert outcomes.of_write(refusal) == "unknown"
    assert outcomes.of_write(NotWritten("no")) == "fail", "a store's own word is taken for it"


def resp(*commands: str) -> bytes:
    stream = b""
    for command in commands:
        words = command.encode().split()
        stream += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
    return stream


def postgres(*messages: tuple[str, bytes]) -> bytes:
    return b"".join(kind.encode() + (len(body) + 4).to_bytes(4) + body for kind, body in messages)


QUERY, EXECUTE, SYNC = "Q", ("E", b"\0" * 5), ("S", b"")


@pytest.mark.parametrize(
    ("stream", "writes"),
    [
        (resp("RPUSH s x"), 1),
        (resp("HELLO 3", "CLIENT SETINFO LIB-NAME x", "LLEN s", "rpush s x"), 1),
        (resp("RPUSH s x", "EXPIRE s 60"), 2),
        (resp("LRANGE s 0 -1"), 0),
        (resp("MULTI", "RPUSH s x", "EXEC"), None),
        (resp("EVALSHA abc 0"), None),
        (resp("RPUSH s x")[:-4], None),
        (b"*nonsense", None),
        (b"\x17\x03\x03\x00\x40encrypted", None),
        (b"\0", 0),
        (postgres(EXECUTE, SYNC), 1),
        (postgres(EXECUTE, SYNC, EXECUTE, SYNC), 2),
        (postgres((QUERY, b"BEGIN;\0"), EXECUTE, SYNC, EXECUTE, SYNC, (QUERY, b"ROLLBACK;\0")), 1),
        (postgres((QUERY, b"BEGIN;\0"), EXECUTE, SYNC, (QUERY, b"COMMIT;\0"), EXECUTE, SYNC), None),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", None),
    ],
)
def test_what_was_sent_is_counted(stream: bytes, writes: int | None) -> None:
    assert writes_in(stream) == writes


@pytest.mark.parametrize(
    ("error", "told"), [(KeyError(), "KeyError"), (ValueError(" two\n lines "), "ValueError: two lines")]
)
def test_an_error_without_words_is_its_name(error: Exception, told: str) -> None:
    assert outcomes.describe(error) == told


@pytest.mark.parametrize(("name", "outcome"), [("first_refused", "fail"), ("second_refused", "unknown")])
def test_what_the_engine_refuses_is_judged_by_what_it_had_taken(
    name: str, outcome: str, tmp_path: Path
) -> None:
    scenario = Scenario(
        target=f"tests.verify.stores:{name}", engine="redis", policy="aof-always", fault="concurrent-writers"
    )
    verdict = Run(scenario, tmp_path).execute()
    assert verdict.status == "held", verdict
    ended = {
        event.kind for event in History(tmp_path / "history.jsonl") if "WRONGTYPE" in (event.error or "")
    }
    assert ended == {outcome}
