"""Somebody else is faster at first: a process's first two appends are refused, and nothing is written."""

from typing import Any

from recollect.errors import NotWritten
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.sqlite_rows import SqliteRows

# What an append executes is recorded from one that succeeds.
CELLS = (Cell("sqlite", "wal-full", "kill-app-at-line"),)


class Refusing(SqliteRows):
    refusals = 2

    def append_message(self, session: str, message: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise NotWritten("the session has changed; try again")
        super().append_message(session, message)


def factory(endpoint: Endpoint) -> Refusing:
    return Refusing(endpoint)
