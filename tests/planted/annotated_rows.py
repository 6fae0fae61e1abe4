"""Messages with ids and a session's metadata, in SQLite: what planted stores are made from. No bug of its own."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from recollect import Conflict, Message
from recollect.store import Stored
from recollect.verify.engines.endpoint import Endpoint

SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, position INTEGER NOT NULL, metadata TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS said (session TEXT, sequence INTEGER, id TEXT, role TEXT, content TEXT, metadata TEXT,
    PRIMARY KEY (session, sequence))"""


class AnnotatedRows:
    def __init__(self, endpoint: Endpoint) -> None:
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute(f"PRAGMA synchronous={endpoint.settings['synchronous']}")
        for statement in SCHEMA.split(";"):
            self.db.execute(statement)

    def append(self, session: str, messages: Sequence[Message]) -> None:
        with self.changing(session, None):
            self.insert(session, messages)

    def replace(self, session: str, messages: Sequence[Message], *, expect: int | None = None) -> None:
        with self.changing(session, expect):
            self.db.execute("DELETE FROM said WHERE session = ?", (session,))
            self.insert(session, messages)

    def annotate(self, session: str, metadata: dict[str, Any], *, expect: int | None = None) -> None:
        with self.changing(session, expect):
            self.db.execute(
                "UPDATE sessions SET position = position + 1, metadata = ? WHERE name = ?",
                (json.dumps(metadata), session),
            )

    def describe(self, session: str) -> Any:
        row = self.db.execute("SELECT metadata FROM sessions WHERE name = ?", (session,)).fetchone()
        return SimpleNamespace(metadata={} if row is None else json.loads(row[0]))

    def position(self, session: str) -> int:
        row = self.db.execute("SELECT position FROM sessions WHERE name = ?", (session,)).fetchone()
        return 0 if row is None else int(row[0])

    def history(self, session: str) -> list[Stored]:
        select = "SELECT sequence, role, content, metadata, id FROM said WHERE session = ? ORDER BY sequence"
        return [self.stored(*row) for row in self.db.execute(select, (session,))]

    def find(self, session: str, message_id: str) -> Stored | None:
        select = "SELECT sequence, role, content, metadata, id FROM said WHERE session = ? AND id = ?"
        row = self.db.execute(select, (session, message_id)).fetchone()
        return None if row is None else self.stored(*row)

    def close(self) -> None:
        self.db.close()

    # ---- how

    def stored(self, sequence: int, role: str, content: str, metadata: str, message_id: str) -> Stored:
        kept = Message(role, json.loads(content), timestamp=0.0, metadata=json.loads(metadata), id=message_id)
        return Stored(sequence, kept)

    def insert(self, session: str, messages: Sequence[Message]) -> None:
        for message in messages:
            self.db.execute("UPDATE sessions SET position = position + 1 WHERE name = ?", (session,))
            kept = (json.dumps(message.content), json.dumps(message.metadata))
            row = (session, self.position(session), message.id, message.role, *kept)
            self.db.execute("INSERT INTO said VALUES (?, ?, ?, ?, ?, ?)", row)

    @contextmanager
    def changing(self, session: str, expect: int | None) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            position = self.position(session)
            if expect not in (None, position):
                raise Conflict(session, expect or 0, position)
            self.db.execute("INSERT OR IGNORE INTO sessions VALUES (?, 0, '{}')", (session,))
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")
