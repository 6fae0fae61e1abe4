"""A compaction deletes the old messages and then writes the new ones: dying between the two leaves neither."""

import time
from collections.abc import Sequence

from recollect import Conflict, Message
from recollect.message import decode, encode
from recollect.store import Stored
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "kill-app-at-line", "changes", ("lost-tail", "hole", "torn-turn"))
EMBEDDING_S = 0.05


class OneStep(SqliteRows):
    """Ids are never given again, so that a session's last one is its position."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS numbered "
            "(id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT, message BLOB)"
        )

    def append(self, session: str, messages: Sequence[Message]) -> None:
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.insert(session, messages)

    def insert(self, session: str, messages: Sequence[Message]) -> None:
        rows = [(session, encode(message)) for message in messages]
        self.db.executemany("INSERT INTO numbered (session, message) VALUES (?, ?)", rows)

    def replace(self, session: str, messages: Sequence[Message], *, expect: int | None = None) -> None:
        time.sleep(EMBEDDING_S)  # the new ones are embedded
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.clear(session, expect)
            self.insert(session, messages)

    def clear(self, session: str, expect: int | None) -> None:
        last = self.position(session)
        if expect is not None and expect != last:
            raise Conflict(session, expect, last)
        self.db.execute("DELETE FROM numbered WHERE session = ?", (session,))

    def position(self, session: str) -> int:
        [found] = self.db.execute("SELECT max(id) FROM numbered WHERE session = ?", (session,))
        return int(found[0] or 0)

    def history(self, session: str) -> list[Stored]:
        rows = self.db.execute("SELECT id, message FROM numbered WHERE session = ? ORDER BY id", (session,))
        return [Stored(sequence, decode(message)) for sequence, message in rows]


class TwoSteps(OneStep):
    def replace(self, session: str, messages: Sequence[Message], *, expect: int | None = None) -> None:
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.clear(session, expect)
        time.sleep(EMBEDDING_S)
        self.append(session, messages)


def factory(endpoint: Endpoint) -> TwoSteps:
    return TwoSteps(endpoint)


def twin(endpoint: Endpoint) -> OneStep:
    return OneStep(endpoint)
