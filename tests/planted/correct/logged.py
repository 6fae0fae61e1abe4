"""`log` with the session last, and by its keyword: role and text are arguments, and nothing else can be said."""

from typing import Any, Literal

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.sqlite_rows import SqliteRows

CELLS = (
    Cell("sqlite", "wal-full", "none", "contents"),
    Cell("sqlite", "wal-full", "concurrent-writers", "append"),
    Cell("sqlite", "delete-extra", "power-loss", "append"),
)


class Logged(SqliteRows):
    def log(self, role: Literal["human", "ai", "system", "tool"], text: str, *, session_id: str) -> None:
        self.append_message(session_id, {"role": role, "content": text})

    def read(self, session_id: str) -> list[Any]:
        return [(one["role"], one["content"]) for one in self.get_history(session_id)]


def factory(endpoint: Endpoint) -> Logged:
    return Logged(endpoint)
