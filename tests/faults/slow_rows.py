"""A plain store on SQLite that takes its time: in a run on it, half a second is as short as on a busy machine."""

import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.sqlite_rows import SqliteRows


class SlowRows(SqliteRows):
    def append_message(self, session: str, message: Any) -> None:
        time.sleep(0.3)
        super().append_message(session, message)


def factory(endpoint: Endpoint) -> SlowRows:
    return SlowRows(endpoint)
