"""The SQLite file under a store: its policies, its schema, how it is opened, and waiting for its lock."""

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from recollect import private
from recollect.errors import (
    CannotOpen,
    DurabilityUnavailable,
    EngineUnavailable,
    Refused,
    Unreadable,
    shorten,
)
from recollect.filesystems import mount_under
from recollect.guarantees import what_can_be_lost
from recollect.store import Durability, Options
from recollect.stores.sqlite.forking import at_work

COMPATIBILITY = 1
"""Increased only by a schema change that older releases cannot work with; kept in the file as ``user_version``."""


class JournalPolicy(NamedTuple):
    journal: str
    synchronous: str
    durability: Durability


class ChosenPolicy(NamedTuple):
    """A policy, and what it is worth on the file system of one file."""

    journal: str
    synchronous: str
    durability: Durability
    """At most `written` if the file system forgets: no fsync helps there."""
    notice: str | None
    """What can be lost."""


PAGE_BYTES = 2048
"""For a new file. Half of SQLite's default: an append writes whole pages, and a message is a few hundred bytes."""
CHECKPOINT_PAGES = 2000
"""SQLite's default is 1,000 pages of 4 kB; twice as many pages of 2 kB make the same 4 MB of WAL."""

CHECKED_BYTES_MAX = 16 * 1024 * 1024
"""A file up to this size is checked when it is opened, which takes about a millisecond per megabyte."""

_STRAY = """
SELECT place FROM recollect_messages WHERE place >> 32 NOT IN (SELECT id FROM recollect_sessions) LIMIT 1"""

_FIRST_TABLES = frozenset(("recollect_meta", "recollect_sessions", "recollect_messages", "recollect_turns"))
"""The tables that every release has created, together."""

POLICIES: dict[str, JournalPolicy] = {
    "wal-full": JournalPolicy("wal", "full", Durability.FSYNCED),
    "wal-normal": JournalPolicy("wal", "normal", Durability.WRITTEN),
    # FULL unlinks the journal without syncing the folder: the last commit can come back undone.
    "delete-full": JournalPolicy("delete", "full", Durability.WRITTEN),
    "delete-extra": JournalPolicy("delete", "extra", Durability.FSYNCED),
}

# Fingerprints of turns have their own table, so that releases without them can still write to the same file.
# Sequences are never reused, so a fingerprint that such a release left behind cannot be mistaken for another turn's.
#
# A message's place is one number, so that appending a message writes one page, half of what a two-column key costs. For
# the same reason a session's last change is dated by its last row, if there is one.
#
# Sequences without a message are tombstones in the table of messages (`recollect.tombstone`).
#
# A session's row has a checksum: a flipped bit there could make the session look forgotten or expired. A release that
# does not know the checksum, or somebody editing by hand, would leave one that no longer fits: the trigger removes it.
CHECKED_COLUMNS = ("id", "key", "floor", "ended", "expires_at", "marked")

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS recollect_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS recollect_sessions (
    id INTEGER PRIMARY KEY CHECK (id < 2147483648),
    key BLOB NOT NULL UNIQUE,
    floor INTEGER NOT NULL DEFAULT 0,  -- last sequence before the messages that are here now
    ended TEXT,                        -- why everything up to the floor is gone: 'forgotten' or 'expired'
    expires_at REAL,                   -- epoch seconds; NULL lives for ever
    repeats INTEGER NOT NULL DEFAULT 0, -- turns that were sent again
    marked INTEGER NOT NULL DEFAULT 0, -- whether there may be tombstones above the floor
    created REAL,                      -- epoch seconds; NULL where an older release made it
    changed REAL,                      -- by something that left no row in messages; NULL where nothing did
    checked INTEGER                    -- CRC-32 of what says which messages are shown; NULL where another hand wrote it
);
CREATE TABLE IF NOT EXISTS recollect_messages (
    place INTEGER PRIMARY KEY,  -- session id << 32 | sequence
    record BLOB NOT NULL,
    written REAL                -- epoch seconds; NULL where an older release wrote it
);
CREATE TABLE IF NOT EXISTS recollect_turns (
    session INTEGER NOT NULL,
    number INTEGER NOT NULL,
    turn BLOB NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS recollect_turns_by_id ON recollect_turns (session, turn);
CREATE TABLE IF NOT EXISTS recollect_fingerprints (
    session INTEGER NOT NULL,
    first INTEGER NOT NULL,  -- of the turn
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (session, first)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS recollect_about (
    session INTEGER PRIMARY KEY,
    metadata BLOB NOT NULL
);
CREATE TRIGGER IF NOT EXISTS recollect_unchecked AFTER UPDATE OF {", ".join(CHECKED_COLUMNS)} ON recollect_sessions
    WHEN NEW.checked IS OLD.checked AND NEW.checked IS NOT NULL
    BEGIN UPDATE recollect_sessions SET checked = NULL WHERE id = NEW.id; END;
PRAGMA user_version = {COMPATIBILITY};
"""


ADDED_COLUMNS = {
    "recollect_sessions": {
        "marked": "INTEGER NOT NULL DEFAULT 0",
        "created": "REAL",
        "changed": "REAL",
        "checked": "INTEGER",
    },
    "recollect_messages": {"written": "REAL"},
}
"""Columns that older releases' files lack. Those releases name the columns they write, so they still work with them."""


def parse_url(url: str) -> tuple[Path, str | None]:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    unknown = query.keys() - {"policy"}
    if unknown:
        raise Refused(
            f"{url}: unknown {', '.join(sorted(unknown))}; sqlite takes ?policy= with {', '.join(POLICIES)}"
        )
    path = unquote(parts.path[1:])
    if parts.netloc or not path:
        raise CannotOpen(f"{url}: write sqlite:///relative.db or sqlite:////absolute/path.db")
    if path == ":memory:":
        raise CannotOpen(
            "memory that lives in the process is forgotten with it; give a file: sqlite:///memory.db"
        )
    return Path(path).absolute(), query.get("policy", [None])[0]


def choose_policy(asked: str | None, options: Options, path: Path) -> ChosenPolicy:
    name = _checked_policy(asked, options)
    policy = POLICIES[name]
    mount = mount_under(path)
    forgets = None if mount is None else mount.why_it_forgets
    if forgets is None:
        losses = what_can_be_lost("sqlite", name)
        helps = 'open it with durability="fsynced", and without ?policy='
        notice = f"can lose {losses[0].sentence}; what helps: {helps}" if losses else None
        return ChosenPolicy(*policy, notice=notice)
    given = min(policy.durability, Durability.WRITTEN)
    if options.durability is not None and given < options.durability:
        raise DurabilityUnavailable(
            f"{path}: {forgets}, so {options.durability.value!r} is out of reach; keep the file on a disk or a "
            f"persistent volume, or ask for {given.value!r}"
        )
    return ChosenPolicy(
        policy.journal, policy.synchronous, given, f"can lose everything: {forgets}; keep the file on a disk"
    )


def _checked_policy(asked: str | None, options: Options) -> str:
    if options.replicas or options.read_url:
        raise DurabilityUnavailable("SQLite has no replicas: open without replicas= and read_url=")
    if asked is None:
        return "wal-normal" if options.durability == Durability.WRITTEN else "wal-full"
    if asked not in POLICIES:
        raise Refused(f"policy {shorten(asked)}: one of {', '.join(POLICIES)}")
    given = POLICIES[asked].durability
    if options.durability is not None and given < options.durability:
        raise DurabilityUnavailable(
            f"{asked} gives {given.value!r}, not {options.durability.value!r}: leave ?policy= out, or use wal-full"
        )
    return asked


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turns SQLite's errors while a file is opened into this library's."""
    if not path.parent.is_dir():
        raise CannotOpen(f"{path}: the folder {path.parent} does not exist; create it first")
    try:
        with at_work():
            yield
    except PermissionError as error:
        raise CannotOpen(f"{path}: {error.strerror}; is the folder writable?") from error
    except FileNotFoundError as error:
        raise CannotOpen(f"{error.filename} was taken away while it was opened; open it again") from error
    except sqlite3.OperationalError as error:
        raise CannotOpen(f"{path}: {error}; is the folder writable, and is there space?") from error
    except (
        sqlite3.DatabaseError,
        UnicodeDecodeError,
    ) as error:  # a damaged name is not text even in SQLite's own error
        raise Unreadable(f"{path}: {error}") from error


def prepare_file(path: Path, policy: ChosenPolicy, mode: int | None, deadline: float) -> str:
    """Makes the file ready, in the policy's journal mode and with the schema; returns the store's identity.

    The connection is closed again: where it is the only one, that moves the log into the file. Otherwise new commits
    would stand in the log behind any that a process before us could not sync, which the kernel may have forgotten.
    """
    created = not path.exists()
    private.make_file(path, mode)
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        if created:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        modes: list[str] = []
        ask = f"PRAGMA journal_mode = {policy.journal}"
        if not until(deadline, lambda: modes.append(connection.execute(ask).fetchone()[0])):
            raise EngineUnavailable(f"{path} is locked by another process")
        if modes[-1] != policy.journal:
            raise DurabilityUnavailable(
                f"{path}: the file system gives journal mode {modes[-1]!r}, not {policy.journal!r}; "
                "network file systems have no shared memory for WAL: use a local disk, or ?policy=delete-extra"
            )
        connection.execute(f"PRAGMA synchronous = {policy.synchronous}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > COMPATIBILITY:
            raise Unreadable(
                f"{path} was written by a newer release (schema {version}, this one knows {COMPATIBILITY}); "
                "upgrade recollect"
            )
        if not created and not until(deadline, lambda: _check_whole(connection, path)):
            raise EngineUnavailable(f"{path} is locked by another process")
        identity = _create_schema(connection, path, deadline)
    if created:
        _sync_folder(path.parent)
    return identity


def _check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses a file whose own structure is damaged: it would silently show less than was written."""
    missing = check_together(connection, path, _FIRST_TABLES)
    if path.stat().st_size > CHECKED_BYTES_MAX:
        return
    (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        raise Unreadable(
            f"{path} is damaged: {' '.join(said.split())[:200]}; restore it from a backup, or save what is left with "
            "sqlite3's .recover"
        )
    if missing:
        return
    stray = connection.execute(_STRAY).fetchone()
    if stray is not None:  # the newest message with a changed number: nothing else would miss it
        raise Unreadable(
            f"{path} is damaged: message {stray[0] & 0xFFFFFFFF} of session number {stray[0] >> 32}, which there is "
            "not; restore it from a backup, or save what is left with sqlite3's .recover"
        )


def check_together(connection: sqlite3.Connection, path: Path, tables: frozenset[str]) -> frozenset[str]:
    """The tables that are missing: none, or all of them. A table whose name has changed hides all its rows."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    missing = tables - found
    if missing and missing != tables:
        raise Unreadable(
            f"{path} is damaged: it has no table {min(missing)}, which was made with the others; restore it from a "
            "backup"
        )
    return missing


def check_columns(connection: sqlite3.Connection, path: Path, schema: str) -> None:
    """Refuses tables whose columns are not what the schema says: the schema is text in the file, where bits flip too.

    If a primary key is no longer one, no row has a number, and everything would read as empty.
    """
    for table, expected in _columns_of(schema).items():
        found = _columns(connection, table)
        for column, kind in expected.items():
            if found.get(column) != kind:
                raise Unreadable(
                    f"{path} is damaged: column {column} of table {table} is {found.get(column)}, not {kind}; restore "
                    "it from a backup"
                )


@cache
def _columns_of(schema: str) -> dict[str, dict[str, tuple[str, int]]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: _columns(connection, name) for (name,) in tables}


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, tuple[str, int]]:
    """For each name: type and place in the primary key, which decide what is found.

    A tool that copies rows leaves out other constraints, and BLOB, which is the same as no type."""
    rows = connection.execute(f"PRAGMA table_info({table})")
    return {name: (kind or "BLOB", place) for _, name, kind, _, _, place in rows}


def _create_schema(connection: sqlite3.Connection, path: Path, deadline: float) -> str:
    if not until(deadline, lambda: connection.execute("BEGIN IMMEDIATE")):
        raise EngineUnavailable("the file is locked by another process")
    for table, columns in ADDED_COLUMNS.items():
        known = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
        for column, kind in columns.items():
            if known and column not in known:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    for statement in SCHEMA.split(";\n"):
        connection.execute(statement)
    check_columns(connection, path, SCHEMA)
    connection.execute("INSERT OR IGNORE INTO recollect_meta VALUES ('identity', ?)", (str(uuid.uuid4()),))
    (identity,) = connection.execute("SELECT value FROM recollect_meta WHERE name = 'identity'").fetchone()
    if not until(deadline, lambda: connection.execute("COMMIT")):
        raise EngineUnavailable("the file is locked by another process")
    return str(identity)


def any_text(raw: bytes) -> str:
    """Text as SQLite holds it, which may not be UTF-8: one bad value must not make the whole read fail."""
    return raw.decode("utf-8", "surrogateescape")


def _sync_folder(folder: Path) -> None:
    """A new file's name is durable only once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def until(deadline: float, step: Callable[[], object]) -> bool:
    """Tries until the lock is free. SQLite's own wait backs off to 100 ms, which starves writers."""
    pause_s = 0.0005
    while True:
        try:
            step()
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.005)
        else:
            return True


def is_locked(error: sqlite3.Error) -> bool:
    return code_of(error) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def code_of(error: sqlite3.Error) -> int:
    """SQLite's own code; 0 for an error that Python's module raises itself, such as for text that is not UTF-8."""
    return getattr(error, "sqlite_errorcode", 0)
