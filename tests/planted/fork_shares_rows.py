"""A fork is only noted: it shows its source's rows, and they go when the source is forgotten."""

from collections.abc import Sequence
from typing import Any

from recollect import Conflict, Message
from recollect.message import decode, encode
from recollect.store import Stored
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "none", "changes", ("dropped",))


class Copied(SqliteRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.db.execute("CREATE TABLE IF NOT EXISTS forked (new TEXT PRIMARY KEY, source TEXT, upto INTEGER)")

    def append(self, session: str, messages: Sequence[Message]) -> None:
        rows = [(session, encode(message)) for message in messages]
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            self.db.executemany("INSERT INTO said (session, content) VALUES (?, ?)", rows)

    def history(self, session: str) -> list[Any]:
        select = "SELECT id, CAST(content AS BLOB) FROM said WHERE session = ? ORDER BY id"
        return [Stored(row, decode(raw)) for row, raw in self.db.execute(select, (session,))]

    def position(self, session: str) -> int:
        return max((one.sequence for one in self.history(session)), default=0)

    def forget(self, session: str) -> None:
        self.db.execute("DELETE FROM said WHERE session = ?", (session,))

    def fork(self, session: str, new: str, *, expect: int | None = None) -> None:
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            if expect is not None and expect != self.position(session):
                raise Conflict(session, expect, self.position(session))
            self.copy(session, new)

    def copy(self, session: str, new: str) -> None:
        select = "SELECT ?, content FROM said WHERE session = ? ORDER BY id"
        self.db.execute(f"INSERT INTO said (session, content) {select}", (new, session))


class Noted(Copied):
    def copy(self, session: str, new: str) -> None:
        self.db.execute("INSERT INTO forked VALUES (?, ?, ?)", (new, session, self.position(session)))

    def history(self, session: str) -> list[Any]:
        noted = self.db.execute("SELECT source, upto FROM forked WHERE new = ?", (session,)).fetchone()
        if noted is None:
            return super().history(session)
        source, upto = noted
        return [one for one in self.history(source) if one.sequence <= upto]

    def forget(self, session: str) -> None:
        super().forget(session)
        self.db.execute("DELETE FROM forked WHERE new = ?", (session,))


def factory(endpoint: Endpoint) -> Noted:
    return Noted(endpoint)


def twin(endpoint: Endpoint) -> Copied:
    return Copied(endpoint)
