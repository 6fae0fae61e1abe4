"""SQLite's statements, held at a gate: in one process, with the client in a thread."""

from __future__ import annotations

import json
import selectors
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.explore.interleavings.dialogues import SentRequest
from recollect.verify.explore.interleavings.engine_waits import UnknownWaits, settle
from recollect.verify.explore.interleavings.footprints import conflict, of_sqlite
from recollect.verify.explore.interleavings.gate import GatedLink
from recollect.verify.explore.interleavings.statement_gate import StatementDialogue, StatementGate
from recollect.verify.target.held_statements import VARIABLE, hold_statements

WAIT_S = 30.0


class AtTheGate:
    """A client in a thread, and its gate."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.selector = selectors.DefaultSelector()
        endpoint = Endpoint(
            url=str(path), engine="sqlite", product="SQLite", version="3", policy="", provider="", path=path
        )
        self.gate = StatementGate(endpoint, self.selector)
        self.result: list[Any] = []

    def client(self, work: Callable[[sqlite3.Connection], Any], **options: Any) -> threading.Thread:
        def live() -> None:
            with_gate = sqlite3.connect(self.path, **options)
            try:
                self.result.append(work(with_gate))
            except sqlite3.Error as error:
                self.result.append(error)
            with_gate.close()

        thread = threading.Thread(target=live, daemon=True)
        thread.start()
        return thread

    def next_link(self) -> GatedLink:
        """The connection whose statement stands at the gate."""
        while not (ready := self.gate.ready):
            found = self.selector.select(WAIT_S)
            assert found, "nobody came to the gate"
            for key, _ in found:
                self.gate.hear(key.fileobj)  # type: ignore[arg-type]
        return ready[0]

    def let_through(self) -> tuple[str, bool]:
        """What the next statement is, and whether it found the file locked."""
        link = self.next_link()
        label = link.send().label
        assert settle([link], UnknownWaits(), WAIT_S) == [link]
        held_back = link.is_held_back
        link.forward()
        return label, held_back


@pytest.fixture
def held(tmp_path: Path) -> Iterator[AtTheGate]:
    path = tmp_path / "file.db"
    plain = sqlite3.connect(path)
    plain.execute("CREATE TABLE t (x)")
    plain.close()
    real, again = sqlite3.connect, sqlite3.dbapi2.connect
    made = AtTheGate(path)
    hold_statements(int(made.gate.environment[VARIABLE]))
    yield made
    sqlite3.connect, sqlite3.dbapi2.connect = real, again
    made.gate.close()
    made.selector.close()


def other(path: Path) -> sqlite3.Connection:
    return sqlite3.Connection(str(path), isolation_level=None)


def test_each_statement_waits_to_be_let_through(held: AtTheGate) -> None:
    def work(db: sqlite3.Connection) -> int:
        with db:
            db.execute("INSERT INTO t VALUES (1)")
            db.cursor().executemany("INSERT INTO t VALUES (?)", iter([(2,), (3,)]))
        return int(db.execute("SELECT count(*) FROM t").fetchone()[0])

    thread, watcher = held.client(work), other(held.path)
    seen = []
    for _ in range(4):
        seen.append((watcher.execute("SELECT count(*) FROM t").fetchone()[0], held.let_through()[0]))
    thread.join(WAIT_S)
    watcher.close()
    assert [count for count, _ in seen] == [0, 0, 0, 3], "what is not let through has not happened"
    assert [label.split()[0] for _, label in seen] == ["INSERT", "INSERT", "COMMIT", "SELECT"]
    assert held.result == [3]


def test_a_statement_that_finds_the_file_locked_stands_at_the_gate_again(held: AtTheGate) -> None:
    holder = other(held.path)
    holder.execute("BEGIN IMMEDIATE")
    thread = held.client(lambda db: db.execute("INSERT INTO t VALUES (1)").rowcount, isolation_level=None)
    assert held.let_through() == ("INSERT INTO t VALUES (1)", True)
    assert held.let_through() == ("INSERT INTO t VALUES (1)", True)
    holder.execute("COMMIT")
    assert held.let_through() == ("INSERT INTO t VALUES (1)", False)
    thread.join(WAIT_S)
    holder.close()
    assert held.result == [1]


def test_a_wait_that_nobody_ends_is_ended_with_the_error_that_it_would_get(held: AtTheGate) -> None:
    holder = other(held.path)
    holder.execute("BEGIN IMMEDIATE")
    thread = held.client(lambda db: db.execute("INSERT INTO t VALUES (1)"), isolation_level=None)
    assert held.let_through()[1]
    link = held.next_link()
    link.stop()
    assert settle([link], UnknownWaits(), WAIT_S) == [link]
    assert not link.is_held_back
    assert link.dialogue.error == "SQLITE_BUSY"
    link.forward()
    thread.join(WAIT_S)
    holder.close()
    assert "locked" in str(held.result[0])


@pytest.mark.parametrize("impatient", [{"timeout": 0}, {}])
def test_who_does_not_wait_is_refused_at_once(held: AtTheGate, impatient: dict[str, int]) -> None:
    def work(db: sqlite3.Connection) -> Any:
        if not impatient:
            db.execute("PRAGMA busy_timeout = 0")
        return db.execute("INSERT INTO t VALUES (1)")

    holder = other(held.path)
    holder.execute("BEGIN IMMEDIATE")
    thread = held.client(work, isolation_level=None, **impatient)
    if not impatient:
        held.let_through()
    assert held.let_through() == ("INSERT INTO t VALUES (1)", False)
    thread.join(WAIT_S)
    holder.close()
    assert isinstance(held.result[0], sqlite3.OperationalError)


def test_a_read_that_cannot_become_a_write_is_refused_at_once(held: AtTheGate) -> None:
    """However patient it is: waiting would not help."""

    def work(db: sqlite3.Connection) -> Any:
        db.execute("BEGIN")
        db.execute("SELECT * FROM t").fetchall()
        return db.execute("INSERT INTO t VALUES (1)")

    writer = other(held.path)
    writer.execute("PRAGMA journal_mode = wal")
    thread = held.client(work, isolation_level=None)
    held.let_through()
    held.let_through()
    writer.execute("INSERT INTO t VALUES (2)")
    assert held.let_through() == ("INSERT INTO t VALUES (1)", False)
    held.let_through()  # its transaction ends when it closes
    thread.join(WAIT_S)
    writer.close()
    assert held.result[0].sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"


def test_what_two_statements_share() -> None:
    insert, select = "INSERT INTO t VALUES (1)", "SELECT x FROM t"

    def share(one: str, other: str, *, in_transaction: bool = False) -> bool:
        return conflict(
            of_sqlite(one, in_transaction=in_transaction), of_sqlite(other, in_transaction=in_transaction)
        )

    assert share("BEGIN IMMEDIATE", "BEGIN IMMEDIATE")
    assert share("BEGIN IMMEDIATE", insert)
    assert share(insert, insert, in_transaction=True)
    assert share(insert, select)
    assert share("COMMIT", select)
    assert not share(select, select)
    assert not share("BEGIN", insert)


def test_nobody_notices_what_a_transaction_with_the_lock_does_before_it_ends() -> None:
    dialogue = StatementDialogue()

    def asked(sql: str, *, in_transaction: bool = True, error: str = "") -> SentRequest:
        told = {"sql": sql, "in_transaction": in_transaction}
        request = dialogue.request(json.dumps(told).encode())
        dialogue.reply(json.dumps({"error": error}).encode())
        return request

    select = of_sqlite("SELECT x FROM t", in_transaction=False)
    locking = of_sqlite("BEGIN IMMEDIATE", in_transaction=False)
    asked("BEGIN", in_transaction=False)
    assert conflict(asked("INSERT INTO t VALUES (1)", error="SQLITE_BUSY").footprint, locking)
    first, second = asked("INSERT INTO t VALUES (1)"), asked("INSERT INTO t VALUES (2)")
    assert conflict(first.footprint, locking)
    assert not conflict(second.footprint, locking)
    assert not conflict(second.footprint, select)
    assert not second.releases
    for ending in ("RELEASE s", "INSERT INTO t VALUES (3); COMMIT", "PRAGMA user_version = 3"):
        assert conflict(asked(ending).footprint, select), ending
    commit = asked("COMMIT")
    assert conflict(commit.footprint, select)
    assert commit.releases
    assert conflict(asked("INSERT INTO t VALUES (3)", in_transaction=False).footprint, locking)
