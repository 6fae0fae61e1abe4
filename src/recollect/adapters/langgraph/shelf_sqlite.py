"""Checkpoints in one SQLite file, which may be the file of the conversation store.

Transactions run as in the store (`SqliteTransactions`): with the same durability policies, and guarded against the file
being taken away.
"""

import asyncio
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from recollect.adapters.langgraph.shelf import (
    CheckpointListing,
    CheckpointRow,
    FoundCheckpoint,
    PendingRow,
    ThreadPlace,
)
from recollect.adapters.langgraph.shelf_sql import (
    ANCESTORS,
    IDENTIFY,
    IDENTITY,
    IDS,
    NAMESPACES,
    OF_CHECKPOINTS,
    RAISE_MARK,
    SCHEMA,
    TABLES,
    copying,
    listing_checkpoints,
    numbered,
)
from recollect.errors import EngineUnavailable, RecollectError
from recollect.store import Options
from recollect.stores.sqlite.file import (
    ChosenPolicy,
    check_columns,
    choose_policy,
    opening,
    parse_url,
    prepare_file,
    until,
)
from recollect.stores.sqlite.transactions import SqliteTransactions

AT_ONCE = 500
"""The most parameters in one statement."""

Job = Callable[[sqlite3.Connection], Any]
Value = TypeVar("Value")


class SqliteShelf(SqliteTransactions[Job]):
    """See `Shelf`."""

    _CALLED = "saver"
    _THREADS = "recollect-checkpoints"

    @classmethod
    async def open(cls, url: str, options: Options) -> "SqliteShelf":
        path, asked = parse_url(url)
        shelf = await asyncio.to_thread(_open, cls, path, asked, options)
        shelf._owner.take_loop()
        return shelf

    def __init__(self, path: Path, policy: ChosenPolicy, options: Options, identity: str) -> None:
        super().__init__(path, policy, options)
        self.identity = identity
        self._near_gate = threading.Lock()
        self._near = self._connect()

    async def mark(self) -> int:
        [(_, mark)] = await self._rows(IDENTITY, ())
        return int(mark)

    async def raise_mark(self) -> None:
        def job(connection: sqlite3.Connection) -> None:
            connection.execute(RAISE_MARK)

        await self._submit(job)

    async def put(self, row: CheckpointRow, values: Mapping[bytes, bytes]) -> None:
        await self._submit(_putting(row, values))

    def put_here(self, row: CheckpointRow, values: Mapping[bytes, bytes]) -> bool:
        return self._write_here(_putting(row, values))

    async def put_writes(self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> None:
        await self._submit(_putting_writes(place, checkpoint, writes))

    def put_writes_here(self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> bool:
        return self._write_here(_putting_writes(place, checkpoint, writes))

    async def get(self, place: ThreadPlace, checkpoint: bytes | None) -> FoundCheckpoint | None:
        return await self._read(_getting(place, checkpoint), inline=True)

    def get_here(self, place: ThreadPlace, checkpoint: bytes | None) -> tuple[bool, FoundCheckpoint | None]:
        if self._policy.journal != "wal" or not self._near_gate.acquire(blocking=False):
            return False, None
        try:
            if self._closed or self._guard.harm_before_read() is not None:
                return False, None
            return True, _getting(place, checkpoint)(self._near)
        except sqlite3.Error:
            return False, None
        finally:
            self._near_gate.release()

    def _write_here(self, job: Job) -> bool:
        """One transaction, as in `_commit`, but without waiting and without errors: what goes wrong here is done again,
        and told, on the other way."""
        if self._policy.journal != "wal" or not self._near_gate.acquire(blocking=False):
            return False
        connection, guard = self._near, self._guard
        try:
            if self._closed:
                return False
            connection.execute("BEGIN IMMEDIATE")
            if guard.harm_before_write(locked=True) is not None:
                return False
            job(connection)
            connection.execute("COMMIT")
            return guard.harm_after_commit() is None
        except Exception:
            return False
        finally:
            try:
                if not self._closed:
                    self._roll_back(connection)
            finally:
                self._near_gate.release()

    async def _release(self) -> None:
        with self._near_gate:
            self._near.close()
        await super()._release()

    async def page(self, listing: CheckpointListing) -> list[FoundCheckpoint]:
        statement, values = listing_checkpoints(listing)

        def query(connection: sqlite3.Connection) -> list[FoundCheckpoint]:
            rows = connection.execute(statement, numbered(*values)).fetchall()
            return [_found(connection, _row(row)) for row in rows]

        return await self._read(_at_one_moment(query))

    async def ancestors(
        self, place: ThreadPlace, checkpoint: bytes, prefixes: Sequence[bytes], limit: int
    ) -> list[FoundCheckpoint]:
        def query(connection: sqlite3.Connection) -> list[FoundCheckpoint]:
            rows = connection.execute(ANCESTORS, numbered(*place, checkpoint, limit)).fetchall()
            return [_found(connection, _row(row), tuple(prefixes)) for row in rows]

        return await self._read(_at_one_moment(query))

    async def ids(self, place: ThreadPlace) -> list[bytes]:
        return [row[0] for row in await self._rows(IDS, numbered(*place))]

    async def namespaces(self, thread: bytes) -> list[bytes]:
        return [row[0] for row in await self._rows(NAMESPACES, numbered(thread))]

    async def of_runs(self, runs: Sequence[bytes]) -> list[tuple[ThreadPlace, bytes]]:
        found: list[tuple[ThreadPlace, bytes]] = []
        for start in range(0, len(runs), AT_ONCE):
            some = runs[start : start + AT_ONCE]
            statement = (
                "SELECT thread, namespace, id FROM langgraph_checkpoints "
                f"WHERE run IN ({','.join('?' * len(some))})"
            )
            found += [
                (ThreadPlace(thread, name), key) for thread, name, key in await self._rows(statement, some)
            ]
        return found

    async def drop(self, place: ThreadPlace, checkpoints: Sequence[bytes]) -> None:
        def job(connection: sqlite3.Connection) -> None:
            for table in OF_CHECKPOINTS:
                connection.executemany(
                    f"DELETE FROM {table} WHERE thread = ? AND namespace = ? AND id = ?",
                    [(*place, checkpoint) for checkpoint in checkpoints],
                )
            where = "WHERE thread = ? AND namespace = ?"
            kept = connection.execute(f"SELECT refs FROM langgraph_checkpoints {where}", place).fetchall()
            referred = {ref for (refs,) in kept for ref in _refs(refs)}
            there = connection.execute(f"SELECT ref FROM langgraph_values {where}", place).fetchall()
            connection.executemany(
                f"DELETE FROM langgraph_values {where} AND ref = ?",
                [(*place, ref) for (ref,) in there if ref not in referred],
            )

        await self._submit(job)

    async def delete_thread(self, thread: bytes) -> None:
        def job(connection: sqlite3.Connection) -> None:
            for table in TABLES:
                connection.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))

        await self._submit(job)

    async def copy_thread(self, source: bytes, target: bytes) -> None:
        def job(connection: sqlite3.Connection) -> None:
            for table in TABLES:
                connection.execute(copying(table), numbered(target, source))

        await self._submit(job)

    # ---- running transactions

    def _outcome(self, job: Job, connection: sqlite3.Connection) -> Any:
        try:
            return job(connection)
        except RecollectError as error:
            return error

    async def _rows(self, statement: str, values: Sequence[Any] | dict[str, Any]) -> list[Any]:
        return await self._read(
            lambda connection: connection.execute(statement, values).fetchall(), inline=True
        )

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA synchronous = {self._policy.synchronous}")
        return connection


_PUT_VALUE = "INSERT OR REPLACE INTO langgraph_values VALUES (?, ?, ?, ?)"
_PUT_CHECKPOINT = "INSERT OR REPLACE INTO langgraph_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def _putting(row: CheckpointRow, values: Mapping[bytes, bytes]) -> Job:
    def job(connection: sqlite3.Connection) -> None:
        for ref, value in values.items():
            connection.execute(_PUT_VALUE, (*row.place, ref, value))
        refs = msgspec.msgpack.encode(row.refs)
        connection.execute(
            _PUT_CHECKPOINT,
            (*row.place, row.id, row.parent, row.run, refs, row.checkpoint, row.metadata),
        )

    return job


def _putting_writes(place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> Job:
    def job(connection: sqlite3.Connection) -> None:
        for write in writes:
            connection.execute(
                f"INSERT OR {'IGNORE' if write.index >= 0 else 'REPLACE'} INTO langgraph_writes "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*place, checkpoint, write.task, write.index, write.channel, write.path, write.value),
            )

    return job


_GET = """
SELECT c.thread, c.namespace, c.id, c.parent, c.run, c.refs, c.checkpoint, c.metadata,
       w.task, w.place, w.channel, w.path, w.value
  FROM (SELECT * FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 {which}) c
  LEFT JOIN langgraph_writes w ON w.thread = $1 AND w.namespace = $2 AND w.id = c.id"""
_GET_LATEST = _GET.format(which="ORDER BY id DESC LIMIT 1")
_GET_ONE = _GET.format(which="AND id = $3")


def _getting(
    place: ThreadPlace, checkpoint: bytes | None
) -> Callable[[sqlite3.Connection], FoundCheckpoint | None]:
    """A checkpoint and its writes in one statement. Its values are read afterwards. They never change, so only a
    missing one can have been removed in between; then everything is read again, as of one moment."""

    def query(connection: sqlite3.Connection) -> FoundCheckpoint | None:
        if checkpoint is None:
            found = connection.execute(_GET_LATEST, numbered(*place)).fetchall()
        else:
            found = connection.execute(_GET_ONE, numbered(*place, checkpoint)).fetchall()
        if not found:
            return None
        row = _row(found[0][:8])
        values = _values(connection, row.place, row.refs)
        writes = [PendingRow(*one[8:]) for one in found if one[8] is not None]
        return FoundCheckpoint(row, values, writes)

    def whole(connection: sqlite3.Connection) -> FoundCheckpoint | None:
        found = query(connection)
        if found is None or len(found.values) == len(set(found.row.refs)):
            return found
        return _at_one_moment(query)(connection)

    return whole


def _open(kind: type[SqliteShelf], path: Path, asked: str | None, options: Options) -> SqliteShelf:
    policy: ChosenPolicy = choose_policy(asked, options, path)
    deadline = time.monotonic() + options.timeout_s
    with opening(path):
        prepare_file(path, policy, options.file_mode, deadline)
        connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            for statement in SCHEMA.split(";\n"):
                if not until(deadline, lambda statement=statement: connection.execute(statement)):  # type: ignore[misc]
                    raise EngineUnavailable(f"{path} is locked by another process")
            check_columns(connection, path, SCHEMA)
            identity = _identity(connection, deadline)
        finally:
            connection.close()
        return kind(path, policy, options, identity)


def _identity(connection: sqlite3.Connection, deadline: float) -> str:
    """Given to a file that has none yet; reading it takes no lock."""
    while (found := connection.execute(IDENTITY).fetchone()) is None:
        if not until(deadline, lambda: connection.execute(IDENTIFY, numbered(str(uuid.uuid4())))):
            raise EngineUnavailable("the file is locked by another process")
    return str(found[0])


def _at_one_moment(query: Callable[[sqlite3.Connection], Value]) -> Callable[[sqlite3.Connection], Value]:
    """Makes several statements see one state of the file."""

    def whole(connection: sqlite3.Connection) -> Value:
        connection.execute("BEGIN")
        try:
            return query(connection)
        finally:
            connection.execute("ROLLBACK")

    return whole


def _row(found: Sequence[Any]) -> CheckpointRow:
    thread, namespace, checkpoint, parent, run, refs, content, metadata = found
    return CheckpointRow(
        ThreadPlace(thread, namespace), checkpoint, parent, run, _refs(refs), content, metadata
    )


def _values(connection: sqlite3.Connection, place: ThreadPlace, refs: Sequence[bytes]) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for start in range(0, len(refs), AT_ONCE):
        some = refs[start : start + AT_ONCE]
        values.update(connection.execute(_values_of(len(some)), (*place, *some)).fetchall())
    return values


@cache
def _values_of(count: int) -> str:
    places = ",".join("?" * count)
    return f"SELECT ref, value FROM langgraph_values WHERE thread = ? AND namespace = ? AND ref IN ({places})"


def _refs(raw: bytes) -> list[bytes]:
    return msgspec.msgpack.decode(raw, type=list[bytes])


def _found(
    connection: sqlite3.Connection, row: CheckpointRow, prefixes: tuple[bytes, ...] | None = None
) -> FoundCheckpoint:
    refs = row.refs if prefixes is None else [ref for ref in row.refs if ref.startswith(prefixes)]
    values = _values(connection, row.place, refs)
    writes = connection.execute(
        "SELECT task, place, channel, path, value FROM langgraph_writes "
        "WHERE thread = ? AND namespace = ? AND id = ?",
        (*row.place, row.id),
    ).fetchall()
    return FoundCheckpoint(row, values, [PendingRow(*write) for write in writes])
