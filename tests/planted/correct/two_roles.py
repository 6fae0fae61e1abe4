"""A dialogue of a user and an assistant, as the class of its messages says; rows with two columns."""

from dataclasses import dataclass
from typing import Literal

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.sqlite_rows import SqliteRows

CELLS = (
    Cell("sqlite", "wal-full", "none", "contents"),
    Cell("sqlite", "wal-full", "concurrent-writers", "contents"),
)


@dataclass(frozen=True)
class Line:
    role: Literal["user", "assistant"]
    content: str


class Dialogue(SqliteRows):
    def append_message(self, session: str, message: Line) -> None:
        super().append_message(session, {"role": message.role, "content": message.content})

    def get_history(self, session: str) -> list[Line]:
        return [Line(**row) for row in super().get_history(session)]


def factory(endpoint: Endpoint) -> Dialogue:
    return Dialogue(endpoint)
