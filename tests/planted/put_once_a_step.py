"""A checkpoint saver, `put` and `get_tuple`, that keeps a checkpoint for each step of a thread: the first one. Two runs
on one thread that both reach a step put twice, and are both told that it was kept."""

import json
from types import SimpleNamespace
from typing import Any

from recollect.errors import NotWritten
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sqlite_rows import SqliteRows

PLANTED = Planted("sqlite", "wal-full", "concurrent-writers", "turns", ("lost-update", "dropped"))


class Checkpoints:
    """Somebody else's checkpoint at this step is a refusal."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.db = SqliteRows(endpoint).db
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS kept (thread TEXT, step INTEGER, state TEXT, UNIQUE (thread, step))"
        )

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        thread = config["configurable"]["thread_id"]
        row = (thread, metadata["step"], json.dumps(checkpoint))
        if not self.db.execute("INSERT OR IGNORE INTO kept VALUES (?, ?, ?)", row).rowcount:
            self.taken(thread)
        return config

    def taken(self, thread: str) -> None:
        raise NotWritten(f"the thread {thread} has moved on; read it again")

    def get_tuple(self, config: Any) -> Any:
        sql = "SELECT step, state FROM kept WHERE thread = ? ORDER BY step DESC LIMIT 1"
        row = self.db.execute(sql, (config["configurable"]["thread_id"],)).fetchone()
        if row is None:
            return None
        return SimpleNamespace(config=config, checkpoint=json.loads(row[1]), metadata={"step": row[0]})


class FirstOfAStep(Checkpoints):
    def taken(self, thread: str) -> None:
        """There is one already."""


def factory(endpoint: Endpoint) -> FirstOfAStep:
    return FirstOfAStep(endpoint)


def twin(endpoint: Endpoint) -> Checkpoints:
    return Checkpoints(endpoint)
