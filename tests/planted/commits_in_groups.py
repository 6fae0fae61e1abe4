"""A thread commits what several callers have queued. If the commit fails, the first is told, and the rest thanked."""

import queue
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted(
    "sqlite", "wal-full", "disk-full", "turns", ("lost-tail", "hole", "dropped"), variant="several-callers"
)
Row = tuple[str, str, str]


class WriterThread:
    def __init__(self, endpoint: Endpoint) -> None:
        self.path, self.synchronous = str(endpoint.path), endpoint.settings["synchronous"]
        self.queue: queue.Queue[tuple[Row, Future[None]] | None] = queue.Queue()
        self.opened: Future[None] = Future()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        self.opened.result()

    def work(self) -> None:
        with closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute(f"PRAGMA synchronous={self.synchronous}")
            db.execute("CREATE TABLE IF NOT EXISTS said (session TEXT, role TEXT, content TEXT)")
            self.opened.set_result(None)
            while (first := self.queue.get()) is not None:
                self.commit(db, [first, *self.waiting()])

    def waiting(self) -> list[tuple[Row, Future[None]]]:
        found = []
        while not self.queue.empty():
            if (one := self.queue.get()) is None:
                self.queue.put(None)
                break
            found.append(one)
        return found

    def commit(self, db: sqlite3.Connection, group: list[tuple[Row, Future[None]]]) -> None:
        try:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO said VALUES (?, ?, ?)", [row for row, _ in group])
            db.execute("COMMIT")
        except Exception as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            self.failed(group, error)
        else:
            for _, done in group:
                done.set_result(None)

    def failed(self, group: list[tuple[Row, Future[None]]], error: Exception) -> None:
        for _, done in group:
            done.set_exception(error)

    def append_message(self, session: str, message: Any) -> None:
        done: Future[None] = Future()
        self.queue.put(((session, message["role"], message["content"]), done))
        done.result()

    def get_history(self, session: str) -> list[Any]:
        select = "SELECT role, content FROM said WHERE session = ? ORDER BY rowid"
        with closing(sqlite3.connect(self.path, timeout=10)) as db:
            return [{"role": role, "content": content} for role, content in db.execute(select, (session,))]

    def close(self) -> None:
        self.queue.put(None)
        self.thread.join()


class OnlyTheFirstIsTold(WriterThread):
    def failed(self, group: list[tuple[Row, Future[None]]], error: Exception) -> None:
        group[0][1].set_exception(error)
        for _, done in group[1:]:
            done.set_result(None)


def factory(endpoint: Endpoint) -> OnlyTheFirstIsTold:
    return OnlyTheFirstIsTold(endpoint)


def twin(endpoint: Endpoint) -> WriterThread:
    return WriterThread(endpoint)
