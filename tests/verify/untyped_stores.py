"""Stores as people write them in their first hour: append(session, messages), without saying what the messages are."""

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint


class Rows:
    """Keeps what `written` makes of a message."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA synchronous=full")
        self.db.execute("CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, session TEXT, body TEXT)")

    def written(self, message: Any) -> Any:
        return json.dumps(message)

    def append(self, session, messages):  # type: ignore[no-untyped-def]
        self.db.execute("BEGIN IMMEDIATE")  # and if the next line raises, it is never ended
        for message in messages:
            row = (session, self.written(message))
            self.db.execute("INSERT INTO said (session, body) VALUES (?, ?)", row)
        self.db.execute("COMMIT")

    def history(self, session: str) -> list[Any]:
        rows = self.db.execute("SELECT body FROM said WHERE session = ? ORDER BY id", (session,))
        return [self.read(body) for (body,) in rows]

    def read(self, body: str) -> Any:
        return json.loads(body)


class OneFile:
    """A dictionary and its file: what is not JSON leaves the file half written, and then it cannot be opened."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.file = Path(f"{endpoint.path}.json")
        self.said = json.loads(self.file.read_text()) if self.file.exists() else {}

    def append(self, session, messages):  # type: ignore[no-untyped-def]
        self.said.setdefault(session, []).extend(messages)
        with self.file.open("w") as file:
            json.dump(self.said, file)

    def history(self, session: str) -> list[Any]:
        return list(self.said.get(session, []))


class OfOneThread(Rows):
    """Opened as `sqlite3` does it by default."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None)


class AnyJson(Rows):
    def written(self, message: Any) -> Any:
        return json.dumps(message, default=str)


class Attributes(Rows):
    def written(self, message: Any) -> Any:
        return json.dumps({"role": message.role, "content": message.text, "metadata": message.metadata})


class Lines(Rows):
    def written(self, message: Any) -> Any:
        return message

    def read(self, body: str) -> Any:
        return body


class Refusing(Rows):
    def written(self, message: Any) -> Any:
        raise ValueError("the disk is full")


class Hanging(Rows):
    def written(self, message: Any) -> Any:
        threading.Event().wait()


class Listed(Rows):
    """Says that it takes a list, and not of what."""

    def append(self, session: str, messages: list) -> None:  # type: ignore[type-arg]
        super().append(session, messages)  # type: ignore[no-untyped-call]


class OneByOne(Rows):
    """Takes one message, by the name of its parameter."""

    def append(self, session, message):  # type: ignore[no-untyped-def]
        super().append(session, [message])  # type: ignore[no-untyped-call]


class Typed(Rows):
    """Says that it takes mappings: nothing to try."""

    def append(self, session: str, messages: list[dict[str, Any]]) -> None:
        super().append(session, messages)  # type: ignore[no-untyped-call]


class OfOneProcess(Typed):
    """Another process may see nothing of what it keeps, and it says so."""

    traits = ("one_process",)
