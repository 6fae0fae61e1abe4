"""Other people's stores: what can be told without sequences is told, a healthy database is not accused, and none is
changed."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import redis
from typer.testing import CliRunner

from recollect import cli
from recollect.audit import AuditReport
from recollect.errors import CannotOpen, EngineUnavailable, Refused, Unreadable
from recollect.verify.auditing.auditing import audit_target
from recollect.verify.auditing.existing import existing
from recollect.verify.engines import Engine
from tests.audit import other_stores
from tests.audit.memories import STORES
from tests.doctor.bytes import contents

TARGET = "tests.audit.other_stores:make_store"

CALL = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"}
ANSWER = {"type": "function_call_output", "call_id": "c1", "output": "found"}
HEALTHY: dict[str, list[Any]] = {
    "plain": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello"}] * 2,
    "tools": [{"role": "user", "content": "?"}, CALL, ANSWER, {"role": "assistant", "content": "!"}],
    "ids": [{"id": name, "role": "user", "content": "same"} for name in "abc"],
    "unknown ids": [{"id": "__fake_id__", "role": "assistant", "content": "same"}] * 2,
    "times": [
        {"role": "user", "content": "x", "created_at": f"2026-01-0{day}T10:00:00Z"} for day in (1, 2, 2)
    ],
}
BROKEN: dict[str, list[Any]] = {
    **HEALTHY,
    "no answer": [CALL, {"role": "user", "content": "and now?"}],
    "no call": [{"role": "user", "content": "?"}, ANSWER, {"role": "assistant", "content": "!"}],
    "again": [{"id": "m1", "role": "user", "content": "x"}, {"id": "m1", "role": "user", "content": "x"}],
    "waits": [{"role": "user", "content": "?"}, CALL],
    "older": [{"role": "user", "content": "x", "timestamp": at} for at in (1_700_000_100, 1_700_000_000)],
    "nothing": [{}],
    "torn": [{"role": "user", "content": "x"}, '{"role": "user", "conte'],
    "raises": [{"role": "user", "content": "x"}],
}
FOUND = {
    "half-turn": 2,
    "duplicate": 1,
    "open-call": 1,
    "order": 1,
    "hidden": 1,
    "unreadable": 2,
}


class Database:
    """Somebody's, on a real engine."""

    def __init__(self, kind: str, engine_of: Callable[[str], Engine], folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.url = (
            f"sqlite:///{folder}/notes.db" if kind == "sqlite" else str(engine_of(kind).endpoint.socket_url)
        )

    async def write(self, conversations: dict[str, list[Any]]) -> int:
        rows = [
            (session, item if isinstance(item, str) else json.dumps(item))
            for session, items in conversations.items()
            for item in items
        ]
        if self.kind == "sqlite":
            store = other_stores.SqliteNotes(str(self.folder / "notes.db"))
            store._database.executemany("INSERT INTO notes (session, item) VALUES (?, ?)", rows)
            store.close()
        elif self.kind == "redis":
            with redis.Redis.from_url(self.url) as client:
                for key in client.scan_iter("notes:*"):
                    client.delete(key)
                for session, item in rows:
                    client.rpush(f"notes:{session}", item)
        else:
            connection = await asyncpg.connect(self.url)
            await connection.execute(f"DROP TABLE IF EXISTS notes; {other_stores.TABLE}")
            numbered = [(place, *row) for place, row in enumerate(rows)]
            await connection.executemany("INSERT INTO notes VALUES ($1, $2, $3)", numbered)
            await connection.close()
        return len(rows)

    async def state(self) -> Any:
        """Everything that changes if somebody writes."""
        if self.kind == "sqlite":
            return contents(self.folder)
        if self.kind == "redis":
            with redis.Redis.from_url(self.url) as client:
                return client.info("persistence")["rdb_changes_since_last_save"]
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch(
                "SELECT xmin::text, ctid::text, session, item FROM notes ORDER BY place"
            )
            return [tuple(row) for row in rows]
        finally:
            await connection.close()

    async def audit(self, target: str = TARGET, **options: Any) -> AuditReport:
        return await audit_target(self.url, target, **options)


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path) -> Database:
    return Database(request.param, engine_of, tmp_path)


async def test_a_healthy_database_is_not_accused(database: Database) -> None:
    written = await database.write(HEALTHY)
    before = await database.state()
    report = await database.audit()
    assert report.counts == {}
    assert report.status in ("held", "exposed")
    assert (report.sessions, report.messages) == (len(HEALTHY), written)
    assert await database.state() == before


async def test_what_is_broken_is_told_and_left_as_it_is(database: Database) -> None:
    await database.write(BROKEN)
    before = await database.state()
    report = await database.audit()
    assert report.counts == FOUND
    assert (report.status, report.exit_code()) == ("violated", 1)
    told = {(one.name, one.session, one.first) for one in report.findings}
    assert told == {
        ("half-turn", "no answer", 1),
        ("half-turn", "no call", 2),
        ("duplicate", "again", 2),
        ("open-call", "waits", 2),
        ("order", "older", 2),
        ("unreadable", "nothing", 1),
        ("unreadable", "raises", None),
        ("hidden", "torn", None),
    }
    assert await database.state() == before


async def test_only_the_sessions_that_were_named(database: Database) -> None:
    await database.write(BROKEN)
    report = await database.audit(sessions=["plain", "no call", "never written"])
    assert report.counts == {"half-turn": 1, "empty": 1}
    assert report.sessions == 3


async def test_a_store_that_can_read_nothing_is_not_a_broken_database(database: Database) -> None:
    await database.write(HEALTHY)
    with pytest.raises(Unreadable, match=r"none of 1 session can be read: LookupError: no such notes"):
        await database.audit(sessions=["raises"])


# ---- nothing is written, and nothing new is opened


async def test_a_store_that_writes_when_it_reads_is_refused(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    database = Database("redis", engine_of, tmp_path)
    await database.write(HEALTHY)
    before = await database.state()
    with pytest.raises(Refused, match=r"writes when it reads.*only-reads:EXPIRE"):
        await database.audit("tests.audit.other_stores:touching")
    assert await database.state() == before


async def test_a_store_that_insists_on_writing_is_refused(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    database = Database("postgres", engine_of, tmp_path)
    await database.write(HEALTHY)
    before = await database.state()
    with pytest.raises(Refused, match=r"writes when it reads.*read-only transaction"):
        await database.audit("tests.audit.other_stores:counting")
    assert await database.state() == before


async def test_no_statement_makes_a_session_write(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    database = Database("postgres", engine_of, tmp_path)
    await database.write(HEALTHY)
    before = await database.state()
    for words in (
        "BEGIN ISOLATION LEVEL SERIALIZABLE, READ WRITE",
        "start transaction read only, read\nwrite, read write",
        "BEGIN; SET TRANSACTION READ WRITE",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "SET default_transaction_read_only = off",
        "SELECT set_config('default_transaction_read_only', 'off', false)",
        "BEGIN; SET LOCAL transaction_read_only TO off",
    ):
        async with existing(database.url, 10.0) as endpoint:
            client = await asyncpg.connect(endpoint.url)
            await client.execute(words)
            with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
                await client.execute("DELETE FROM notes")
            await client.execute("ROLLBACK")
            same = "a read write head; SHOW transaction_read_only"
            assert await client.fetchval("SELECT $1 || 'to read write'", same) == f"{same}to read write"
            assert await client.fetchval("SHOW transaction_read_only") == "on"
            await client.close()
    assert await database.state() == before


async def test_a_store_that_only_opens_by_writing_is_refused(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    database = Database("postgres", engine_of, tmp_path)
    await database.write(HEALTHY)
    with pytest.raises(CannotOpen, match="can only be opened by writing"):
        await database.audit("tests.audit.other_stores:eager")


async def test_a_file_in_use_is_read_as_it_is_at_one_moment(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    database = Database("sqlite", engine_of, tmp_path)
    await database.write(HEALTHY)
    writer = other_stores.SqliteNotes(str(tmp_path / "notes.db"))
    writer.append_message("late", {"role": "user", "content": "x"})
    report = await database.audit()
    writer.close()
    assert (report.sessions, report.counts) == (len(HEALTHY) + 1, {})


async def test_the_log_beside_what_a_link_names_is_read(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    database = Database("sqlite", engine_of, tmp_path)
    await database.write(HEALTHY)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "linked.db").symlink_to(tmp_path / "notes.db")
    database.url = f"sqlite:///{tmp_path}/links/linked.db"
    writer = other_stores.SqliteNotes(str(tmp_path / "notes.db"))
    writer.append_message("late", {"role": "user", "content": "x"})
    report = await database.audit()
    writer.close()
    assert (report.sessions, report.counts) == (len(HEALTHY) + 1, {})


async def test_a_damaged_file_is_told_by_sqlite_itself(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    database = Database("sqlite", engine_of, tmp_path)
    await database.write(HEALTHY)
    with closing(sqlite3.connect(tmp_path / "notes.db", isolation_level=None)) as hands:
        hands.execute("CREATE TABLE tags (note integer REFERENCES notes (place), tag text)")
        hands.execute("CREATE INDEX by_session ON notes (session)")
        assert (await database.audit()).counts == {}
        hands.execute("INSERT INTO tags VALUES (999, 'urgent')")
        hands.execute("PRAGMA writable_schema = ON")
        hands.execute(
            "UPDATE sqlite_master SET sql = replace(sql, '(session)', '(item)') WHERE name = 'by_session'"
        )
    report = await database.audit()
    assert report.counts.keys() == {"index", "orphaned"}
    assert "row 1 of tags belongs to a row of notes that is not there" in [
        one.sentence for one in report.findings
    ]


@pytest.mark.parametrize(
    ("url", "target", "why"),
    [
        ("sqlite:///{folder}/none.db", TARGET, "no such file"),
        ("sqlite:///{folder}/empty.db", "agents.sqlite", "which is not installed|no such table"),
        ("redis://127.0.0.1:1/0", TARGET, "refused"),
        ("redis+cluster://127.0.0.1:1", TARGET, "several servers"),
        ("redis://127.0.0.1:1/0", "agents.sqlite", "agents.sqlite keeps its memory in sqlite"),
        ("chroma:///somewhere", TARGET, "address scheme"),
        ("sqlite:///{folder}/empty.db", "tests.audit.other_stores:Unlisted.make_store", "--sessions FILE"),
        ("sqlite:///{folder}/empty.db", "tests.audit.other_stores:nobody", "has no 'nobody'"),
    ],
)
async def test_what_cannot_be_audited_is_refused_and_not_created(
    url: str, target: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.db").touch()
    before = contents(tmp_path)
    with pytest.raises((Refused, CannotOpen, EngineUnavailable), match=why):
        await audit_target(url.format(folder=tmp_path), target)
    assert contents(tmp_path) == before


# ---- the command


def recollect_audit(*words: str, given: str = "") -> Any:
    return CliRunner().invoke(cli.build(["audit", *words]), ["audit", *words], input=given)


async def aside(*words: str, given: str = "") -> Any:
    """The command has an event loop of its own."""
    return await asyncio.to_thread(recollect_audit, *words, given=given)


async def test_the_command_has_the_codes_and_documents_of_an_audit(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    broken = Database("sqlite", engine_of, folder)
    await broken.write(BROKEN)
    page, document = tmp_path / "page.html", tmp_path / "audit.json"
    done = await aside(broken.url, "--target", TARGET, "--json", str(document), "--html", str(page))
    assert done.exit_code == 1, done.output
    assert "✗ memory is incomplete or damaged" in done.output
    assert "no call: message 2 answers the call 'c1', which is not there" in done.output
    told = json.loads(document.read_text())
    assert (told["status"], told["target"], told["counts"]) == ("violated", TARGET, FOUND)
    assert "answers the call &#x27;c1&#x27;" in page.read_text()
    healthy = await aside(broken.url, "--target", TARGET, "--sessions", "-", given="plain\ntools\n")
    assert healthy.exit_code == 0, healthy.output
    assert "cannot be missed" in healthy.output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--sessions", "-"], "give it with --target"),
        (["--target", TARGET, "--witness", "w"], "--witness belongs to"),
        (
            ["--target", TARGET, "--sessions", "nowhere.txt"],
            "--sessions nowhere.txt: No such file or directory; a file",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], why: str, tmp_path: Path) -> None:
    done = recollect_audit(f"sqlite:///{tmp_path}/notes.db", *words)
    assert done.exit_code == 2
    assert why in " ".join(done.output.split())
