"""A store without a fault: each of its connections sets the PRAGMAs that the endpoint asks for, and prints them."""

import sqlite3
from collections.abc import Sequence

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint


class Pragmas:
    def __init__(self, endpoint: Endpoint) -> None:
        assert endpoint.path is not None
        self._connection = sqlite3.connect(endpoint.path, timeout=5, isolation_level=None)
        for name in ("journal_mode", "synchronous"):
            self._connection.execute(f"PRAGMA {name}={endpoint.settings[name]}")
        (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        print(f"journal_mode is {mode}, the witness is at {endpoint.settings.get('witness')}")

    def append(self, session: str, messages: Sequence[Message]) -> None:
        rows = [(session, message.role, message.content) for message in messages]
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO said (session, role, content) VALUES (?, ?, ?)", rows)
        self._connection.execute("COMMIT")

    def history(self, session: str) -> list[dict[str, str]]:
        rows = self._connection.execute(
            "SELECT role, content FROM said WHERE session = ? ORDER BY n", (session,)
        )
        return [{"role": role, "content": content} for role, content in rows]

    def close(self) -> None:
        self._connection.close()


def prepare(endpoint: Endpoint) -> None:
    connection = sqlite3.connect(endpoint.url.removeprefix("sqlite:///"))
    connection.execute("CREATE TABLE said (n INTEGER PRIMARY KEY, session, role, content)")
    connection.close()


def factory(endpoint: Endpoint) -> Pragmas:
    return Pragmas(endpoint)
