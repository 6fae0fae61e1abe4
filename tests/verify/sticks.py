"""A store whose twelfth append never ends."""

import threading
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.sqlite_rows import SqliteRows


class Sticking(SqliteRows):
    appended = 0

    def append_message(self, session: str, message: Any) -> None:
        self.appended += 1
        if self.appended == 12:
            threading.Event().wait()
        super().append_message(session, message)


def factory(endpoint: Endpoint) -> Sticking:
    return Sticking(endpoint)
