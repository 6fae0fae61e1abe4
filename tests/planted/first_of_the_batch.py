"""A keyed `add_messages` that stores the first of them and forgets the loop."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "concurrent-writers", "turns", ("dropped",))


class Batches:
    def __init__(self, endpoint: Endpoint) -> None:
        self.rows = SqliteRows(endpoint)

    def add_messages(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.rows.db.execute("BEGIN IMMEDIATE")
        with self.rows.db:
            for message in self.kept(messages):
                self.rows.append_message(session, message)

    def kept(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return messages

    def get_messages(self, session: str) -> list[Any]:
        return self.rows.get_history(session)


class First(Batches):
    def kept(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return messages[:1]


def factory(endpoint: Endpoint) -> First:
    return First(endpoint)


def twin(endpoint: Endpoint) -> Batches:
    return Batches(endpoint)
