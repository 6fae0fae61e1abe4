"""Stores on SQLite for asyncio: the connection lives in a thread, and each statement is a job for it."""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from recollect.message import Message
from recollect.verify.engines import Endpoint

Messages = Sequence[Message]

TABLE = "CREATE TABLE IF NOT EXISTS chat (session, place, body, PRIMARY KEY (session, place))"
PLACE = "SELECT coalesce(max(place), 0) + 1 FROM chat WHERE session = ?"
UPSERT = "INSERT OR REPLACE INTO chat VALUES (?, ?, ?)"
READ = "SELECT body FROM chat WHERE session = ? ORDER BY place"


def plain(message: Message) -> str:
    return json.dumps({"role": message.role, "content": message.text})


class PlaceThenRow:
    """One connection for all tasks: what is the highest place, then the next one."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.thread = ThreadPoolExecutor(1)
        self.path = endpoint.path
        self.db: Any = None

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.thread, work, *arguments)

    async def statement(self, sql: str, values: tuple[object, ...] = ()) -> list[Any]:
        if self.db is None:
            self.db = await self.run(self.connect)
        return list(await self.run(lambda: self.db.execute(sql, values).fetchall()))

    def connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(str(self.path), isolation_level=None, check_same_thread=False)
        db.execute(TABLE)
        return db

    async def append(self, session: str, messages: Messages) -> None:
        for message in messages:
            ((place,),) = await self.statement(PLACE, (session,))
            await self.statement(UPSERT, (session, place, plain(message)))

    async def history(self, session: str) -> list[dict[str, str]]:
        return [json.loads(body) for (body,) in await self.statement(READ, (session,))]

    async def close(self) -> None:
        if self.db is not None:
            await self.run(self.db.close)
        self.thread.shutdown(wait=False)


class OneJob(PlaceThenRow):
    """Nothing wrong: a turn is one job and one transaction."""

    async def append(self, session: str, messages: Messages) -> None:
        await self.statement("SELECT 1")
        await self.run(self.write, session, messages)

    def write(self, session: str, messages: Messages) -> None:
        self.db.execute("BEGIN IMMEDIATE")
        for message in messages:
            ((place,),) = self.db.execute(PLACE, (session,)).fetchall()
            self.db.execute(UPSERT, (session, place, plain(message)))
        self.db.execute("COMMIT")


class AnotherWay(OneJob):
    """Nothing wrong, but its connection is not made by `sqlite3.connect`, so nobody can hold its statements."""

    def connect(self) -> sqlite3.Connection:
        db = sqlite3.Connection(str(self.path), isolation_level=None, check_same_thread=False)
        db.execute(TABLE)
        return db


class LockPerProcess(PlaceThenRow):
    """A lock that other processes do not see."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.lock = asyncio.Lock()

    async def append(self, session: str, messages: Messages) -> None:
        async with self.lock:
            await super().append(session, messages)


class SharedTransaction(PlaceThenRow):
    """BEGIN, statements and COMMIT of several tasks on one connection: one begins in the middle of another's."""

    async def append(self, session: str, messages: Messages) -> None:
        await self.statement("BEGIN")
        await super().append(session, messages)
        await self.statement("COMMIT")


class LockedTransaction(SharedTransaction):
    """Nothing wrong with one task at a time, readers too, because they would see a turn that is not committed. Between
    processes, a transaction that has read cannot write once another has written."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.lock = asyncio.Lock()

    async def append(self, session: str, messages: Messages) -> None:
        async with self.lock:
            await super().append(session, messages)

    async def history(self, session: str) -> list[dict[str, str]]:
        async with self.lock:
            return await super().history(session)


class UndoneIfGivenUp(LockedTransaction):
    """Nothing wrong: whatever becomes of a turn, the next one can begin. A caller that gives up may get the error of
    the clean-up, because there is nothing to roll back."""

    async def append(self, session: str, messages: Messages) -> None:
        async with self.lock:
            try:
                await SharedTransaction.append(self, session, messages)
            except BaseException:
                await self.statement("ROLLBACK")
                raise


class LeftOpen(LockedTransaction):
    """A caller that gives up while its turn begins leaves the transaction open: nobody can begin another one."""

    async def append(self, session: str, messages: Messages) -> None:
        async with self.lock:
            await self.statement("BEGIN")
            try:
                await PlaceThenRow.append(self, session, messages)
                await self.statement("COMMIT")
            except BaseException:
                await self.statement("ROLLBACK")
                raise


class UncommittedIsSeen(LockedTransaction):
    """Writers take turns; a reader on the same connection sees half of what is being written."""

    async def history(self, session: str) -> list[dict[str, str]]:
        return await PlaceThenRow.history(self, session)


class _OwnThread:
    """A connection with a thread of its own, which Python waits for at the end: as in aiosqlite."""

    def __init__(self, path: str) -> None:
        self.work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.loop = asyncio.get_running_loop()
        threading.Thread(target=self._live, args=(path,)).start()

    def _live(self, path: str) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        while (asked := self.work.get()) is not None:
            future, sql, values = asked
            try:
                say = partial(future.set_result, db.execute(sql, values).fetchall())
            except Exception as error:
                say = partial(future.set_exception, error)
            self.loop.call_soon_threadsafe(say)
        db.close()

    async def execute(self, sql: str, values: tuple[object, ...] = ()) -> list[Any]:
        future = self.loop.create_future()
        self.work.put((future, sql, values))
        return list(await future)


class ConnectionPerCall:
    """Nothing wrong: each call has a connection, and writers wait for each other inside SQLite."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.path = str(endpoint.path)

    async def append(self, session: str, messages: Messages) -> None:
        db = _OwnThread(self.path)
        await db.execute(TABLE)
        await db.execute("BEGIN IMMEDIATE")
        for message in messages:
            await db.execute(f"INSERT INTO chat VALUES (?, ({PLACE}), ?)", (session, session, plain(message)))
        await db.execute("COMMIT")
        self.leave(db)

    async def history(self, session: str) -> list[dict[str, str]]:
        db = _OwnThread(self.path)
        await db.execute(TABLE)
        found = await db.execute(READ, (session,))
        self.leave(db)
        return [json.loads(body) for (body,) in found]

    def leave(self, db: _OwnThread) -> None:
        db.work.put(None)


class ThreadsLeftBehind(ConnectionPerCall):
    """Nothing wrong with what it keeps; but its threads never end."""

    def leave(self, db: _OwnThread) -> None:
        pass


class LooksBeforeItBegins(ConnectionPerCall):
    """The place is looked up before the transaction."""

    async def append(self, session: str, messages: Messages) -> None:
        db = _OwnThread(self.path)
        await db.execute(TABLE)
        ((place,),) = await db.execute(PLACE, (session,))
        await db.execute("BEGIN IMMEDIATE")
        for number, message in enumerate(messages):
            await db.execute(UPSERT, (session, place + number, plain(message)))
        await db.execute("COMMIT")
        self.leave(db)
