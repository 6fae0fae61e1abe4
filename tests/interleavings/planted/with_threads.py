"""Synchronous stores that several threads share."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import redis

from recollect.message import Message
from recollect.verify.engines import Endpoint

Messages = Sequence[Message]
Said = list[dict[str, str]]

TABLE = "CREATE TABLE IF NOT EXISTS chat (session, place, body, PRIMARY KEY (session, place))"
PLACE = "SELECT coalesce(max(place), 0) + 1 FROM chat WHERE session = ?"
UPSERT = "INSERT OR REPLACE INTO chat VALUES (?, ?, ?)"
READ = "SELECT body FROM chat WHERE session = ? ORDER BY place"


def plain(message: Message) -> str:
    return json.dumps({"role": message.role, "content": message.text})


class Counter:
    """Each message gets its place from the store's own counter."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url)
        self.next: dict[str, int] = {}

    def append(self, session: str, messages: Messages) -> None:
        for message in messages:
            place = self.next.get(session, 0)
            self.client.hset(f"chat:{session}", place, plain(message))
            self.next[session] = place + 1

    def history(self, session: str) -> Said:
        found = self.client.hgetall(f"chat:{session}")
        return [json.loads(found[key]) for key in sorted(found, key=int)]

    def close(self) -> None:
        self.client.close()


class CounterInTheEngine(Counter):
    """Nothing wrong: the engine counts, and one command writes the turn."""

    def append(self, session: str, messages: Messages) -> None:
        last = self.client.incrby(f"places:{session}", len(messages))
        first = last - len(messages)
        fields = {first + number: plain(message) for number, message in enumerate(messages)}
        self.client.hset(f"chat:{session}", mapping=fields)


class CompactsEveryTenth(CounterInTheEngine):
    """At its own tenth append, whatever the session, it reads everything and writes it back."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.count = 0

    def append(self, session: str, messages: Messages) -> None:
        super().append(session, messages)
        self.count += 1
        if self.count % 10 == 0:
            known = self.client.hgetall(f"chat:{session}")
            with self.client.pipeline() as pipe:
                pipe.delete(f"chat:{session}").hset(f"chat:{session}", mapping=known).execute()


class LockPerSession(Counter):
    """A lock for each session, made when it is first needed: two threads make two."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.locks: dict[str, Any] = {}

    def append(self, session: str, messages: Messages) -> None:
        if session not in self.locks:
            lock = threading.Lock()
            self.locks[session] = lock
        with self.locks[session]:
            place = self.next.get(session, 0)
            fields = {place + number: plain(message) for number, message in enumerate(messages)}
            self.client.hset(f"chat:{session}", mapping=fields)
            self.next[session] = place + len(messages)


class OneConnection:
    """One SQLite connection for all threads, and no lock."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.path = str(endpoint.path)
        self.connect()

    def connect(self) -> None:
        self.db = sqlite3.connect(self.path, check_same_thread=False)
        self.db.execute(TABLE)
        self.db.commit()

    def append(self, session: str, messages: Messages) -> None:
        for message in messages:
            (place,) = self.db.execute(PLACE, (session,)).fetchone()
            self.db.execute(UPSERT, (session, place, plain(message)))
        self.db.commit()

    def history(self, session: str) -> Said:
        return [json.loads(body) for (body,) in self.db.execute(READ, (session,)).fetchall()]

    def close(self) -> None:
        self.db.close()


class OneLock(OneConnection):
    """Nothing wrong: one connection, one lock around everything."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.lock = threading.RLock()

    def append(self, session: str, messages: Messages) -> None:
        with self.lock:
            super().append(session, messages)

    def history(self, session: str) -> Said:
        with self.lock:
            return super().history(session)


class LockOfTheClass(OneConnection):
    """Nothing wrong: the lock was made when the module was imported."""

    lock = threading.Lock()

    def append(self, session: str, messages: Messages) -> None:
        with LockOfTheClass.lock:
            super().append(session, messages)

    def history(self, session: str) -> Said:
        with LockOfTheClass.lock:
            return super().history(session)


class WritersOnly(OneLock):
    """Writers take turns; a reader on the same connection sees what is not committed yet."""

    def history(self, session: str) -> Said:
        return OneConnection.history(self, session)


class RollsBack(WritersOnly):
    """A reader that finds nothing rolls back, "to be safe"."""

    def history(self, session: str) -> Said:
        found = OneConnection.history(self, session)
        if not found:
            self.db.rollback()
        return found


class LockBeforeCommit(OneConnection):
    """A connection for each thread and a lock around the statements, given back before the commit."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.local, self.lock = threading.local(), threading.Lock()
        super().__init__(endpoint)

    def connect(self) -> None:
        self.mine().execute(TABLE)
        self.mine().commit()

    def mine(self) -> sqlite3.Connection:
        if not hasattr(self.local, "db"):
            self.local.db = sqlite3.connect(self.path, check_same_thread=False)
        found: sqlite3.Connection = self.local.db
        return found

    def append(self, session: str, messages: Messages) -> None:
        with self.lock:
            place = self.mine().execute(PLACE, (session,)).fetchone()[0]
        for number, message in enumerate(messages):
            self.mine().execute(UPSERT, (session, place + number, plain(message)))
        self.mine().commit()

    def history(self, session: str) -> Said:
        return [json.loads(body) for (body,) in self.mine().execute(READ, (session,)).fetchall()]

    def close(self) -> None:
        self.mine().close()


class TwoLocks(OneConnection):
    """Two locks: a writer takes them in one order, a reader in the other."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.one, self.other = threading.Lock(), threading.Lock()

    def append(self, session: str, messages: Messages) -> None:
        with self.one:
            with self.other:
                super().append(session, messages)

    def history(self, session: str) -> Said:
        with self.other:
            with self.one:
                return super().history(session)


class TriesAgain:
    """Nothing wrong: a connection for each call, which tries again after a pause while another one has the lock."""

    TRIES = 100

    def __init__(self, endpoint: Endpoint) -> None:
        self.path = str(endpoint.path)
        self.locked(lambda db: db.execute(TABLE))

    def append(self, session: str, messages: Messages) -> None:
        self.locked(lambda db: self.add(db, session, messages))

    def add(self, db: sqlite3.Connection, session: str, messages: Messages) -> None:
        for message in messages:
            ((place,),) = db.execute(PLACE, (session,)).fetchall()
            db.execute(UPSERT, (session, place, plain(message)))

    def history(self, session: str) -> Said:
        found: list[tuple[str]] = self.locked(lambda db: db.execute(READ, (session,)).fetchall())
        return [json.loads(body) for (body,) in found]

    def locked(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        for _ in range(self.TRIES):
            try:
                with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as db:
                    db.execute("BEGIN IMMEDIATE")
                    result = work(db)
                    db.execute("COMMIT")
                    return result
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
            time.sleep(0.005)
        raise TimeoutError("the memory is too busy")


class PausesBetween(TriesAgain):
    """Asks for the place in one transaction and writes in another, after a pause."""

    def append(self, session: str, messages: Messages) -> None:
        ((place,),) = self.locked(lambda db: db.execute(PLACE, (session,)).fetchall())
        time.sleep(0.001)
        rows = [(session, place + number, plain(message)) for number, message in enumerate(messages)]
        self.locked(lambda db: db.executemany(UPSERT, rows))
