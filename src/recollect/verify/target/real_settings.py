"""What the store's own connections are really set to, read back through them.

`synchronous` belongs to a SQLite connection, `synchronous_commit` to a PostgreSQL session: neither a file nor a server
can say what a store uses. So the connections that a store makes while it is opened are remembered and asked once it is
open; one that it closes before is asked as it closes. A store on SQLite that connects only when it is called writes one
message to a `scratch` file, in a process of its own, and is asked then (`Workers.settings`). A connection that belongs
to another thread is asked there, after each statement. One that cannot be asked (its driver is not known here) says
nothing, and the store is judged by its cell's policy.
"""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from recollect.verify.engines.endpoint import Endpoint

Settings = dict[str, str]
_SYNCHRONOUS = "synchronous_commit"

_open: WeakSet[_NotedConnection] = WeakSet()
_closed: list[tuple[str, Settings]] = []
CLOSED_MAX = 20
_WRITE_VERSION, _LOG = 18, b"\2"
"""Where a file's header says how it is written, and what it says if there is a write-ahead log."""


class _NotedConnection(sqlite3.Connection):
    """Looks like any other connection, but is asked for its settings before it is closed."""

    def __init__(self, database: Any, *args: Any, **options: Any) -> None:
        super().__init__(database, *args, **options)
        self.told: tuple[str, Settings] | None = None
        """What it said last in its own thread, which is not ours."""
        if "mode=ro" not in str(database):
            _open.add(self)

    def execute(self, *args: Any) -> sqlite3.Cursor:
        cursor = super().execute(*args)
        self._note()
        return cursor

    def commit(self) -> None:
        super().commit()
        self._note()

    def _note(self) -> None:
        if threading.current_thread() is not threading.main_thread() and self in _open:
            with contextlib.suppress(sqlite3.Error):
                self.told = _asked(self)

    def close(self) -> None:
        if self in _open:
            _open.discard(self)
            with contextlib.suppress(sqlite3.Error):
                _closed.append(_asked(self))
                del _closed[:-CLOSED_MAX]
        super().close()


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """Remembers the connections that this process makes meanwhile, except those with a class of their own."""
    original = sqlite3.connect

    def connect(*args: Any, **options: Any) -> Any:
        if len(args) < 6 and "factory" not in options:  # database … check_same_thread, factory
            options["factory"] = _NotedConnection
        return original(*args, **options)

    sqlite3.connect = sqlite3.dbapi2.connect = connect
    try:
        yield
    finally:
        sqlite3.connect = sqlite3.dbapi2.connect = original
        forget()  # from now on they close like any other


def forget() -> None:
    """Nothing that was connected until now is the store's: a migration has connections of its own."""
    _open.clear()
    _closed.clear()


def scratch(endpoint: Endpoint, folder: Path) -> Endpoint | None:
    """A new file in the folder with the journal mode of the endpoint's; None where there is no such file."""
    if endpoint.engine != "sqlite" or endpoint.path is None:
        return None
    file = folder / endpoint.path.name
    with contextlib.closing(sqlite3.connect(file)) as new:
        new.execute(f"PRAGMA journal_mode={'wal' if _has_log(endpoint.path) else 'delete'}")
    return replace(endpoint, path=file, url=f"sqlite:///{file}")


def _has_log(file: Path) -> bool:
    """Whether its header says so; a connection would leave files beside it that no recording explains."""
    try:
        with file.open("rb") as opened:
            return opened.read(_WRITE_VERSION + 1)[_WRITE_VERSION:] == _LOG
    except FileNotFoundError:
        return False


def _asked(connection: sqlite3.Connection) -> tuple[str, Settings]:
    """Its file and its settings; sqlite3.Error if it cannot be asked, for example from another thread."""
    files = {_text(name): _text(file) for _, name, file in _rows(connection, "database_list")}
    names = ("journal_mode", "synchronous")
    return files.get("main", ""), {name: _text(_rows(connection, name)[0][0]) for name in names}


def _text(value: object) -> str:
    """A text, in whatever type the store's `text_factory` gave it."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _rows(connection: sqlite3.Connection, pragma: str) -> list[Any]:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    try:
        return cursor.execute(f"PRAGMA {pragma}").fetchall()
    finally:
        cursor.close()


async def read_back(endpoint: Endpoint) -> list[Settings]:
    """The settings of every connection to this engine that can be asked, each once."""
    found = await (_of_postgres() if endpoint.engine.startswith("postgres") else _of_sqlite(endpoint))
    return [dict(pairs) for pairs in dict.fromkeys(tuple(sorted(each.items())) for each in found)]


async def _of_sqlite(endpoint: Endpoint) -> list[Settings]:
    if endpoint.engine != "sqlite" or endpoint.path is None:
        return []
    told = []
    for connection in list(_open):
        try:
            told.append(_asked(connection))
        except sqlite3.Error:
            told += [] if connection.told is None else [connection.told]
    return _to(endpoint.path, told) or _to(endpoint.path, _closed)


def _to(path: Path, told: Sequence[tuple[str, Settings]]) -> list[Settings]:
    return [settings for file, settings in told if file and Path(file).resolve() == path.resolve()]


async def _of_postgres() -> list[Settings]:
    """Only drivers that the store has imported are asked; a connection in the middle of something is left alone."""
    found = []
    for connection in _objects("asyncpg.connection", "Connection"):
        with contextlib.suppress(Exception):
            if not connection.is_closed() and not connection.is_in_transaction():
                found.append({_SYNCHRONOUS: str(await connection.fetchval(f"SHOW {_SYNCHRONOUS}"))})
    for connection in _objects("psycopg", "Connection"):
        with contextlib.suppress(Exception):
            # Idle; otherwise the question would become part of its transaction.
            if connection.info.transaction_status == 0:
                answer = connection.pgconn.exec_(f"SHOW {_SYNCHRONOUS}".encode())
                found.append({_SYNCHRONOUS: answer.get_value(0, 0).decode()})
    return found


def _objects(module: str, name: str) -> list[Any]:
    kind = getattr(sys.modules.get(module), name, None)
    return [] if kind is None else [each for each in gc.get_objects() if isinstance(each, kind)]
