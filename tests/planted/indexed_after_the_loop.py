"""The line that fills the index slipped out of the loop: of several messages at once, only the last can be found."""

from collections.abc import Sequence
from typing import Any

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "concurrent-writers", "search", ("index-divergence",))


class Indexed(SqliteRows):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(content)")

    def append(self, session: str, messages: Sequence[Message]) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        with self.db:
            self.write(session, messages)

    def write(self, session: str, messages: Sequence[Message]) -> None:
        for message in messages:
            self.index(self.insert(session, message), message)

    def insert(self, session: str, message: Message) -> Any:
        row = (session, message.role, message.content)
        return self.db.execute("INSERT INTO said (session, role, content) VALUES (?, ?, ?)", row).lastrowid

    def index(self, row: Any, message: Message) -> None:
        self.db.execute("INSERT INTO words (rowid, content) VALUES (?, ?)", (row, message.content))

    def history(self, session: str) -> list[Any]:
        return self.get_history(session)

    def search(self, session: str) -> tuple[list[Any], list[Any]]:
        found = "SELECT said.role, words.content FROM words JOIN said ON said.id = words.rowid WHERE said.session = ?"
        rows = self.db.execute(found, (session,)).fetchall()
        return self.history(session), [{"role": role, "content": content} for role, content in rows]


class Slipped(Indexed):
    def write(self, session: str, messages: Sequence[Message]) -> None:
        for message in messages:
            row = self.insert(session, message)
        self.index(row, message)


def factory(endpoint: Endpoint) -> Slipped:
    return Slipped(endpoint)


def twin(endpoint: Endpoint) -> Indexed:
    return Indexed(endpoint)
