"""Keeps the text and not who said it: on reading, user and assistant take turns. Role and content are two arguments."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "none", "contents", ("corrupted",), variant="one-writer")


class Said(SqliteRows):
    def append(self, session_id: str, role: str, content: str) -> None:
        self.append_message(session_id, {"role": role, "content": content})

    def history(self, session_id: str) -> list[Any]:
        return self.get_history(session_id)


class TakingTurns(Said):
    def history(self, session_id: str) -> list[Any]:
        said = super().history(session_id)
        return [{**one, "role": ("user", "assistant")[place % 2]} for place, one in enumerate(said)]


def factory(endpoint: Endpoint) -> TakingTurns:
    return TakingTurns(endpoint)


def twin(endpoint: Endpoint) -> Said:
    return Said(endpoint)
