"""Releases of one store on the rows that its first release left: `both_layouts` reads them, the others do not."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from recollect.verify.engines.endpoint import Endpoint

TABLE = (
    "CREATE TABLE IF NOT EXISTS said (place INTEGER PRIMARY KEY, session TEXT NOT NULL, body TEXT NOT NULL)"
)


def write_first_release(file: Path, sessions: dict[str, list[tuple[str, str]]]) -> None:
    """As the first release kept them: other field names, other words for roles."""
    db = sqlite3.connect(file)
    db.execute(TABLE)
    for session, messages in sessions.items():
        for who, text in messages:
            body = json.dumps({"who": {"user": "human", "assistant": "ai"}[who], "text": text})
            db.execute("INSERT INTO said (session, body) VALUES (?, ?)", (session, body))
    db.commit()
    db.close()


class BothLayouts:
    def __init__(self, endpoint: Endpoint) -> None:
        self.db = sqlite3.connect(str(endpoint.path), isolation_level=None, timeout=10)
        self.db.execute(TABLE)

    def append_message(self, session: str, message: Any) -> None:
        body = json.dumps({"role": message["role"], "content": message["content"]})
        self.db.execute("INSERT INTO said (session, body) VALUES (?, ?)", (session, body))

    def get_history(self, session: str) -> list[Any]:
        rows = self.db.execute("SELECT body FROM said WHERE session = ? ORDER BY place", (session,))
        read = (self.lifted(json.loads(body)) for (body,) in rows)
        return [message for message in read if message is not None]

    def lifted(self, body: dict[str, str]) -> dict[str, str] | None:
        if "who" not in body:
            return body
        return {"role": {"human": "user", "ai": "assistant"}[body["who"]], "content": body["text"]}

    def close(self) -> None:
        self.db.close()


class SkipsOldRows(BothLayouts):
    def lifted(self, body: dict[str, str]) -> dict[str, str] | None:
        return body if "content" in body else None


class EmptyOldTexts(BothLayouts):
    def lifted(self, body: dict[str, str]) -> dict[str, str] | None:
        return {"role": body.get("role", "user"), "content": body.get("content", "")}


class RaisesOnOldRows(BothLayouts):
    def lifted(self, body: dict[str, str]) -> dict[str, str] | None:
        return {"role": body["role"], "content": body["content"]}


class OtherRoles(BothLayouts):
    def lifted(self, body: dict[str, str]) -> dict[str, str] | None:
        return body if "who" not in body else {"role": "user", "content": body["text"]}


class NewestFirst(BothLayouts):
    def get_history(self, session: str) -> list[Any]:
        read = super().get_history(session)
        old = [message for message in read if not message["content"].startswith("#")]
        return [*reversed(old), *read[len(old) :]]


class PlacesFromOne(BothLayouts):
    """Counts places itself, and begins again at 1: what it writes goes over the oldest rows."""

    def append_message(self, session: str, message: Any) -> None:
        body = json.dumps({"role": message["role"], "content": message["content"]})
        (place,) = self.db.execute("SELECT count(*) FROM said WHERE body LIKE '%content%'").fetchone()
        self.db.execute("INSERT OR REPLACE INTO said VALUES (?, ?, ?)", (place + 1, session, body))


class CannotAppend(BothLayouts):
    """Wants a column that no migration made."""

    def append_message(self, session: str, message: Any) -> None:
        self.db.execute("INSERT INTO said (session, body, role) VALUES (?, '', '')", (session,))
