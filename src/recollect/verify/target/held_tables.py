"""A neighbour of the store in its own process: it keeps the tables of the SQLite file, as another part of an
application does that shares the connection cache (`file:memory.db?cache=shared`)."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

AGAIN_S = 0.005


def hold_tables(path: Path, until: float) -> None:
    """Holds them until then, by the machine's monotonic clock. If somebody else has the file for that long, there is
    nothing to hold."""
    address = f"file:{quote(str(path))}?cache=shared"
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=0)) as neighbour,
    ):
        _begin(neighbour, until)
        names = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        for (table,) in neighbour.execute(names).fetchall():
            quoted = table.replace('"', '""')
            neighbour.execute(f'DELETE FROM "{quoted}" WHERE 0')
        time.sleep(max(0.0, until - time.monotonic()))
        neighbour.execute("ROLLBACK")


def _begin(neighbour: sqlite3.Connection, until: float) -> None:
    """Tried again here, because SQLite waits for no lock of a shared cache."""
    while True:
        try:
            neighbour.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(AGAIN_S)
        else:
            return
