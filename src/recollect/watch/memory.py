"""What the canary remembers, outside the engine it watches: a small SQLite file.

A message is noted once it is acknowledged; one that was sent but not noted may be there or not, so a canary killed at
any moment can continue where it was. Two canaries with one file would raise false alarms, so the file is locked.

`--clean` deletes the file, so it must be a canary's: a database that has anything else in it is never written to.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from recollect import private, regular_files
from recollect.audit.source import EngineFacts
from recollect.errors import CannotOpen, Refused

_SCHEMA = """
CREATE TABLE IF NOT EXISTS said (
    session TEXT, sequence INTEGER, id TEXT, acknowledged_at REAL, PRIMARY KEY (session, sequence));
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT);
"""
_COLUMNS = {"said": ["session", "sequence", "id", "acknowledged_at"], "notes": ["name", "value"]}


class MemoryFailed(Exception):
    """The file can no longer be read or written. Not a `RecollectError`: it says nothing about the engine."""


class CanaryMessage(NamedTuple):
    """A message that was acknowledged."""

    session: str
    sequence: int
    id: str
    acknowledged_at: float


class CanaryMemory:
    def __init__(self, path: Path, address: str) -> None:
        """`address` is the engine's, without credentials: a memory of another engine would raise false alarms."""
        if not path.parent.is_dir():
            raise CannotOpen(
                f"{path}: the folder {path.parent} does not exist; create it, or name another file"
            )
        _check_ours(path)
        try:
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Refused(
                f"{path} is in use by another watch; give each a file of its own with --memory"
            ) from None
        except OSError as error:
            raise CannotOpen(f"{path}: {error.strerror or error}") from None
        self.path = path
        try:
            private.make_file(path)
            self._file = sqlite3.connect(path, isolation_level=None)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.executescript(_SCHEMA)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise MemoryFailed(_failed(path, error)) from None
        known = self._note("address")
        if known is not None and known != address:
            self.close()
            raise Refused(
                f"{path} remembers {known}, not {address}; give each a file of its own with --memory"
            )
        self.set("address", address)
        self.canary = self._note("canary") or uuid.uuid4().hex[:12]
        self.set("canary", self.canary)

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._file.close()
        os.close(self._lock)

    def _ask(self, statement: str, values: Sequence[Any]) -> list[Any]:
        return self._asked(lambda: self._file.execute(statement, values))

    def _asked(self, ask: Callable[[], sqlite3.Cursor]) -> list[Any]:
        try:
            return ask().fetchall()
        except sqlite3.Error as error:
            raise MemoryFailed(_failed(self.path, error)) from None

    def remove(self) -> None:
        """Deletes the closed file, which is no longer needed."""
        for suffix in ("", "-wal", "-shm", ".lock"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    # ---- what was acknowledged

    def note_said(self, said: CanaryMessage) -> None:
        self._ask("INSERT OR REPLACE INTO said VALUES (?, ?, ?, ?)", said)

    def said_in(self, session: str) -> list[CanaryMessage]:
        rows = self._ask("SELECT * FROM said WHERE session = ? ORDER BY sequence", (session,))
        return [CanaryMessage(*row) for row in rows]

    def forget(self, session: str, sequences: list[int] | None = None) -> None:
        """Forgets what was reported lost, so that it is not reported again; without sequences, the whole session."""
        if sequences is None:
            self._ask("DELETE FROM said WHERE session = ?", (session,))
            return
        rows = [(session, sequence) for sequence in sequences]
        self._asked(
            lambda: self._file.executemany("DELETE FROM said WHERE session = ? AND sequence = ?", rows)
        )

    # ---- what else is remembered

    def set(self, name: str, value: str) -> None:
        self._ask("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    def _note(self, name: str) -> str | None:
        rows = self._ask("SELECT value FROM notes WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def current(self, part: str = "") -> int:
        """Which of the two sessions is being written to."""
        return int(self._note(f"current{part}") or 0)

    def set_current(self, part: str, number: int) -> None:
        self.set(f"current{part}", str(number))

    def facts(self, part: str = "") -> EngineFacts | None:
        text = self._note(f"facts{part}")
        return None if text is None else msgspec.json.decode(text, type=EngineFacts)

    def note_heard(self, part: str, facts: EngineFacts, now: float) -> None:
        self.set(f"facts{part}", msgspec.json.encode(facts).decode())
        self.set(f"heard_at{part}", str(now))

    def heard_at(self, part: str = "") -> float:
        """When the engine was last found as it should be."""
        return float(self._note(f"heard_at{part}") or 0.0)

    @property
    def settings(self) -> dict[str, str] | None:
        text = self._note("settings")
        return None if text is None else msgspec.json.decode(text, type=dict[str, str])

    @property
    def window_s(self) -> float | None:
        """How much the engine's settings can lose; None means no bound."""
        text = self._note("window_s")
        return None if text is None else msgspec.json.decode(text, type=float | None)

    def note_settings(self, settings: dict[str, str], window_s: float | None) -> None:
        self.set("settings", msgspec.json.encode(settings).decode())
        self.set("window_s", msgspec.json.encode(window_s).decode())


def _check_ours(path: Path) -> None:
    """Raises unless the file is missing, empty or a canary's; it is only read."""
    try:
        descriptor = regular_files.descriptor_of(path)
        empty = os.fstat(descriptor).st_size == 0
        os.close(descriptor)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotOpen(f"{path}: {error.strerror or error}") from None
    if empty:
        return
    log = Path(f"{path}-wal")
    # Which leaves no file beside it.
    how = "mode=ro" if log.exists() and log.stat().st_size else "immutable=1"
    another = CannotOpen(f"{path} is not the memory of a watch; name another file with --memory")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as file:
            tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = {
                table: [row[1] for row in file.execute(f'PRAGMA table_info("{table}")')]
                for table in tables
                if table in _COLUMNS
            }
    except sqlite3.DatabaseError:
        raise another from None
    if len(columns) < len(tables) or any(found != _COLUMNS[table] for table, found in columns.items()):
        raise another


def _failed(path: Path, error: sqlite3.Error) -> str:
    return f"its own memory cannot be written or read: {path}: {error}"
