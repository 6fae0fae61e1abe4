"""What the canary remembers, outside the engine it watches: a small SQLite file.

A message is noted once it is acknowledged; one that was sent but not noted may be there or not, so a canary killed at
any moment can continue where it was. Two canaries with one file would raise false alarms, so the file is locked.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import uuid
from pathlib import Path
from typing import NamedTuple

import msgspec

from recollect import private
from recollect.audit.source import EngineFacts
from recollect.errors import CannotOpen, Refused

_SCHEMA = """
CREATE TABLE IF NOT EXISTS said (
    session TEXT, sequence INTEGER, id TEXT, acknowledged_at REAL, PRIMARY KEY (session, sequence));
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT);
"""


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
            known = self._note("address")
        except sqlite3.Error as error:
            os.close(self._lock)
            raise CannotOpen(f"{path}: {error}; it is not the memory of a watch") from None
        if known is not None and known != address:
            self.close()
            raise Refused(
                f"{path} remembers {known}, not {address}; give each a file of its own with --memory"
            )
        self.set("address", address)
        self.canary = self._note("canary") or uuid.uuid4().hex[:12]
        self.set("canary", self.canary)

    def close(self) -> None:
        self._file.close()
        os.close(self._lock)

    def remove(self) -> None:
        """Deletes the closed file, which is no longer needed."""
        for suffix in ("", "-wal", "-shm", ".lock"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    # ---- what was acknowledged

    def note_said(self, said: CanaryMessage) -> None:
        self._file.execute("INSERT OR REPLACE INTO said VALUES (?, ?, ?, ?)", said)

    def said_in(self, session: str) -> list[CanaryMessage]:
        rows = self._file.execute("SELECT * FROM said WHERE session = ? ORDER BY sequence", (session,))
        return [CanaryMessage(*row) for row in rows]

    def forget(self, session: str, sequences: list[int] | None = None) -> None:
        """Forgets what was reported lost, so that it is not reported again; without sequences, the whole session."""
        if sequences is None:
            self._file.execute("DELETE FROM said WHERE session = ?", (session,))
            return
        rows = [(session, sequence) for sequence in sequences]
        self._file.executemany("DELETE FROM said WHERE session = ? AND sequence = ?", rows)

    # ---- what else is remembered

    def set(self, name: str, value: str) -> None:
        self._file.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    def _note(self, name: str) -> str | None:
        row = self._file.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    @property
    def current(self) -> int:
        """Which of the two sessions is being written to."""
        return int(self._note("current") or 0)

    @property
    def facts(self) -> EngineFacts | None:
        text = self._note("facts")
        return None if text is None else msgspec.json.decode(text, type=EngineFacts)

    @facts.setter
    def facts(self, facts: EngineFacts) -> None:
        self.set("facts", msgspec.json.encode(facts).decode())

    @property
    def heard_at(self) -> float:
        """When the engine was last found as it should be."""
        return float(self._note("heard_at") or 0.0)

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
