"""Checkpoints in one SQLite file, which may be the file of the conversation store.

Transactions run as in the store (`SqliteTransactions`): with the same durability policies, and guarded against the file
being taken away.
"""

import asyncio
import logging
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from recollect.adapters.langgraph.shelf import (
    MISSING,
    CheckpointListing,
    CheckpointRow,
    FoundCheckpoint,
    PendingRow,
    ThreadPlace,
    Unchanged,
)
from recollect.adapters.langgraph.shelf_layout import (
    KnownHomes,
    Laid,
    Layout,
    for_child,
    has_others,
    inline_values,
    laid_out,
    layout_of,
    moved,
)
from recollect.adapters.langgraph.shelf_sql import (
    ADDED,
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
from recollect.errors import EngineUnavailable, OutcomeUnknown, RecollectError, Unreadable
from recollect.near import NearTurns
from recollect.store import Options
from recollect.stores.sqlite.file import (
    ChosenPolicy,
    check_columns,
    choose_policy,
    code_of,
    is_locked,
    opening,
    parse_url,
    prepare_file,
    until,
)
from recollect.stores.sqlite.transactions import SqliteTransactions, commit_failed

log = logging.getLogger("recollect")

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
        if shelf.notice:
            log.warning("%s: %s", path, shelf.notice)
        return shelf

    def __init__(self, path: Path, policy: ChosenPolicy, options: Options, identity: str) -> None:
        super().__init__(path, policy, options)
        self.identity = identity
        self._homes = KnownHomes()
        self._turns = NearTurns()
        self._near = self._connect()

    @property
    def is_quick(self) -> bool:
        return self._inline()

    async def mark(self) -> int:
        [(_, mark)] = await self._rows(IDENTITY, ())
        return int(mark)

    async def raise_mark(self) -> None:
        def job(connection: sqlite3.Connection) -> None:
            connection.execute(RAISE_MARK)

        await self._submit(job)

    async def put(self, row: CheckpointRow, values: Mapping[bytes, bytes], unchanged: Unchanged) -> None:
        base = None
        if has_others(row, values):
            base = self._homes.of(row) or await self._read(_layout_of_base(row), inline=True)
        laid = laid_out(row, values, unchanged, base)
        if not await self._submit(_putting(row, laid)):
            laid = laid_out(row, values, unchanged, None)
            await self._submit(_putting(row, laid))
        self._homes.note(row.place, row.id, laid.layout)

    def put_here(self, row: CheckpointRow, values: Mapping[bytes, bytes], unchanged: Unchanged) -> bool:
        base = None
        if has_others(row, values) and (base := self._homes.of(row)) is None:
            asked, base = self._read_here(_layout_of_base(row))
            if not asked:
                return False
        laid = laid_out(row, values, unchanged, base)
        done = self._write_here(_putting(row, laid), alone=not laid.own_rows)
        if done:
            self._homes.note(row.place, row.id, laid.layout)
        return done

    async def put_writes(self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> None:
        await self._submit(_putting_writes(place, checkpoint, writes))

    def put_writes_here(self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]) -> bool:
        return self._write_here(_putting_writes(place, checkpoint, writes), alone=len(writes) == 1)

    async def get(self, place: ThreadPlace, checkpoint: bytes | None) -> FoundCheckpoint | None:
        return self._seen(await self._read(_getting(place, checkpoint), inline=True))

    def get_here(self, place: ThreadPlace, checkpoint: bytes | None) -> tuple[bool, FoundCheckpoint | None]:
        done, found = self._read_here(_getting(place, checkpoint))
        return done, self._seen(found)

    def _seen(self, found: "_ReadCheckpoint | None") -> FoundCheckpoint | None:
        if found is None:
            return None
        row, layout, values, writes = found
        self._homes.note(row.place, row.id, layout)
        return FoundCheckpoint(row, values, writes)

    def _read_here(self, query: Callable[[sqlite3.Connection], Value]) -> tuple[bool, Value | None]:
        turn = self._turns.begin() if self._policy.journal == "wal" else None
        if turn is None:
            return False, None
        try:
            if self._closed or self._guard.harm_before_read() is not None:
                return False, None
            return True, query(self._near)
        except sqlite3.Error:
            return False, None
        finally:
            turn.over = True

    def _write_here(self, job: Job, *, alone: bool) -> bool:
        """One transaction, as in `_commit`, but without waiting; errors are told on the other way, where it is done
        again. A job `alone` is a single statement, and so a transaction by itself."""
        turn = self._turns.begin() if self._policy.journal == "wal" else None
        if turn is None:
            return False
        connection, guard = self._near, self._guard
        ending = False
        try:
            if self._closed:
                return False
            self._roll_back(connection)  # what a caller left who was interrupted in doing so
            if not alone:
                connection.execute("BEGIN IMMEDIATE")
            started = time.monotonic()
            if guard.harm_before_write(locked=not alone) is not None:
                return False
            if job(connection) is False:
                return False
            if not alone:
                ending = True
                connection.execute("COMMIT")
            self._note_commit(time.monotonic() - started)
            return guard.harm_after_commit() is None
        except sqlite3.Error as error:
            ending = ending or code_of(error) & 0xFF == sqlite3.SQLITE_IOERR
            if ending and not is_locked(error):
                failed = commit_failed(self._path, error)
                if isinstance(failed, OutcomeUnknown):
                    raise failed from error
            return False
        except Exception:
            return False
        finally:
            try:
                if not self._closed:
                    self._roll_back(connection)
            finally:
                turn.over = True

    async def _release(self) -> None:
        if await asyncio.to_thread(self._turns.close, self._timeout_s):
            self._near.close()
        await super()._release()

    async def page(self, listing: CheckpointListing) -> list[FoundCheckpoint]:
        statement, values = listing_checkpoints(listing)

        def query(connection: sqlite3.Connection) -> list[FoundCheckpoint]:
            rows = connection.execute(statement, numbered(*values)).fetchall()
            return [_found(connection, row) for row in rows]

        return await self._read(_at_one_moment(query))

    async def ancestors(
        self, place: ThreadPlace, checkpoint: bytes, prefixes: Sequence[bytes], limit: int
    ) -> list[FoundCheckpoint]:
        def query(connection: sqlite3.Connection) -> list[FoundCheckpoint]:
            rows = connection.execute(ANCESTORS, numbered(*place, checkpoint, limit)).fetchall()
            return [_found(connection, row, tuple(prefixes)) for row in rows]

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
            dropped = _selected(connection, "id, inline FROM langgraph_checkpoints", "id", place, checkpoints)
            for table in OF_CHECKPOINTS:
                connection.executemany(
                    f"DELETE FROM {table} WHERE thread = ? AND namespace = ? AND id = ?",
                    [(*place, checkpoint) for checkpoint in checkpoints],
                )
            where = "WHERE thread = ? AND namespace = ?"
            rows = connection.execute(f"SELECT refs, homes FROM langgraph_checkpoints {where}", place)
            kept = [_layout(refs, homes, None) for refs, homes in rows]
            there = connection.execute(f"SELECT ref FROM langgraph_values {where}", place).fetchall()
            referred = {ref for layout in kept for ref in layout.homes}
            connection.executemany(
                f"DELETE FROM langgraph_values {where} AND ref = ?",
                [(*place, ref) for (ref,) in there if ref not in referred],
            )
            homeless = moved({name: inline_values(raw) for name, raw in dropped}, kept)
            connection.executemany(_PUT_VALUE, [(*place, ref, value) for ref, value in homeless.items()])

        await self._submit(job)

    async def delete_thread(self, thread: bytes) -> None:
        def job(connection: sqlite3.Connection) -> None:
            for table in TABLES:
                connection.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))

        await self._submit(job)
        self._homes.forget(thread)

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


_PUT_VALUE = "INSERT OR REPLACE INTO langgraph_values VALUES (?, ?, ?, ?)"
_PUT_CHECKPOINT = "INSERT OR REPLACE INTO langgraph_checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_ON_BASE = (
    "INSERT OR REPLACE INTO langgraph_checkpoints SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE EXISTS "
    "(SELECT 1 FROM langgraph_checkpoints WHERE thread = ? AND namespace = ? AND id = ?)"
)
"""Nothing, if its base is gone."""
_LAYOUT = (
    "SELECT parent, refs, homes, inline, checksum FROM langgraph_checkpoints "
    "WHERE thread = ? AND namespace = ? AND id = ?"
)


def _layout_of_base(row: CheckpointRow) -> Callable[[sqlite3.Connection], Layout | None]:
    """What its base has for it; None if there is no such checkpoint."""

    def query(connection: sqlite3.Connection) -> Layout | None:
        assert row.base is not None
        found = connection.execute(_LAYOUT, (*row.place, row.base)).fetchone()
        if found is None:
            return None
        parent, refs, homes, inline, checksum = found
        return for_child(row, _layout(refs, homes, inline).checked(row.base, parent, checksum))

    return query


def _putting(row: CheckpointRow, laid: Laid) -> Job:
    """False is its result if the base that it needs is gone."""

    def job(connection: sqlite3.Connection) -> bool:
        for ref, value in laid.own_rows.items():
            connection.execute(_PUT_VALUE, (*row.place, ref, value))
        layout = laid.layout
        values = (
            *row.place,
            row.id,
            row.parent,
            row.run,
            _ENCODE(list(layout.homes)),
            row.checkpoint,
            row.metadata,
            _ENCODE(list(layout.homes.values())) if layout.other_rows else None,
            _ENCODE(layout.inline) if layout.inline else None,
            layout.checksum(row.id, row.parent),
        )
        if laid.needs_base:
            done = connection.execute(_PUT_ON_BASE, (*values, *row.place, row.base))
        else:
            done = connection.execute(_PUT_CHECKPOINT, values)
        return done.rowcount == 1

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
SELECT c.thread, c.namespace, c.id, c.parent, c.run, c.refs, c.checkpoint, c.metadata, c.homes, c.inline, c.checksum,
       w.task, w.place, w.channel, w.path, w.value
  FROM (SELECT * FROM langgraph_checkpoints WHERE thread = $1 AND namespace = $2 {which}) c
  LEFT JOIN langgraph_writes w ON w.thread = $1 AND w.namespace = $2 AND w.id = c.id"""
_GET_LATEST = _GET.format(which="ORDER BY id DESC LIMIT 1")
_GET_ONE = _GET.format(which="AND id = $3")
_COLUMNS = 11
"""Of a checkpoint; after them come those of a write."""


class _ReadCheckpoint(NamedTuple):
    """A checkpoint as read, with where its values are."""

    row: CheckpointRow
    layout: Layout
    values: dict[bytes, bytes]
    writes: list[PendingRow]


def _getting(
    place: ThreadPlace, checkpoint: bytes | None
) -> Callable[[sqlite3.Connection], _ReadCheckpoint | None]:
    """A checkpoint and its writes in one statement. Values in other rows are read afterwards. They never change, so
    only a missing one can have been removed in between; then everything is read again, as of one moment, in which none
    may be missing."""

    def query(connection: sqlite3.Connection) -> _ReadCheckpoint | None:
        if checkpoint is None:
            found = connection.execute(_GET_LATEST, numbered(*place)).fetchall()
        else:
            found = connection.execute(_GET_ONE, numbered(*place, checkpoint)).fetchall()
        if not found:
            return None
        row, layout = _row(found[0][:_COLUMNS])
        values = _values(connection, row.place, layout)
        writes = [PendingRow(*one[_COLUMNS:]) for one in found if one[_COLUMNS] is not None]
        return _ReadCheckpoint(row, layout, values, writes)

    def whole(connection: sqlite3.Connection) -> _ReadCheckpoint | None:
        found = query(connection)
        if found is None or MISSING not in found.values.values():
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
            for statement in [*SCHEMA.split(";\n"), *_missing_columns(connection)]:
                if not until(deadline, lambda statement=statement: connection.execute(statement)):  # type: ignore[misc]
                    raise EngineUnavailable(f"{path} is locked by another process")
            check_columns(connection, path, SCHEMA)
            identity = _identity(connection, deadline)
        finally:
            connection.close()
        return kind(path, policy, options, identity)


def _missing_columns(connection: sqlite3.Connection) -> list[str]:
    """What brings a file of an earlier edition up to date. In the first, all values have rows of their own."""
    known = {name for _, name, *_ in connection.execute("PRAGMA table_info(langgraph_checkpoints)")}
    return [
        f"ALTER TABLE langgraph_checkpoints ADD COLUMN {name} BLOB"
        for name in ADDED
        if known and name not in known
    ]


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


def _row(found: Sequence[Any]) -> tuple[CheckpointRow, Layout]:
    thread, namespace, checkpoint, parent, run, refs, content, metadata, homes, inline, checksum = found
    layout = _layout(refs, homes, inline).checked(checkpoint, parent, checksum)
    place = ThreadPlace(thread, namespace)
    return CheckpointRow(place, checkpoint, parent, run, [], content, metadata), layout


def _layout(refs: bytes, homes: bytes | None, inline: bytes | None) -> Layout:
    return layout_of(_ids(refs), None if homes is None else _ids(homes), inline)


def _ids(raw: bytes) -> list[bytes]:
    try:
        return _DECODE_IDS(raw)
    except msgspec.DecodeError as error:
        raise Unreadable(
            f"the references of a checkpoint: {error}; restore the file from a backup"
        ) from error


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE_IDS = msgspec.msgpack.Decoder(list[bytes]).decode


def _values(connection: sqlite3.Connection, place: ThreadPlace, layout: Layout) -> dict[bytes, bytes]:
    if not layout.homes:
        return layout.inline
    others = {
        checkpoint: inline_values(raw)
        for checkpoint, raw in _selected(
            connection, "id, inline FROM langgraph_checkpoints", "id", place, [*layout.other_rows]
        )
    }
    elsewhere = [ref for ref, home in layout.homes.items() if ref not in others.get(home, {})]
    own_rows = _selected(connection, "ref, value FROM langgraph_values", "ref", place, elsewhere)
    return layout.gathered(others, dict(own_rows))


def _selected(
    connection: sqlite3.Connection, what: str, by: str, place: ThreadPlace, wanted: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    rows: list[tuple[bytes, bytes]] = []
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        rows += connection.execute(_selecting(what, by, len(some)), (*place, *some)).fetchall()
    return rows


@cache
def _selecting(what: str, by: str, count: int) -> str:
    return f"SELECT {what} WHERE thread = ? AND namespace = ? AND {by} IN ({','.join('?' * count)})"


def _found(
    connection: sqlite3.Connection, found: Sequence[Any], prefixes: tuple[bytes, ...] | None = None
) -> FoundCheckpoint:
    row, layout = _row(found)
    values = _values(connection, row.place, layout if prefixes is None else layout.without_others(prefixes))
    writes = connection.execute(
        "SELECT task, place, channel, path, value FROM langgraph_writes "
        "WHERE thread = ? AND namespace = ? AND id = ?",
        (*row.place, row.id),
    ).fetchall()
    return FoundCheckpoint(row, values, [PendingRow(*write) for write in writes])
