"""SQLite's statements, held until somebody lets them through: for a client whose order with other processes is chosen.

SQLite lives in the client's process, so there is no connection to hold. `hold_statements` replaces `sqlite3.connect` by
one whose connections ask at a gate before each statement, over a socket of their own:

    client  {"sql": …, "values": …, "in_transaction": …}     may I?
    gate    go
    client  busy                                             somebody has the lock: tell me when to try again
    gate    go, or stop (nobody will ever give it back)
    client  {"error": …}                                     it is done
    gate    on

A statement waits for a lock as long as its connection would: SQLite is given a short time, and the rest is the gate's.
A refusal without any waiting (a read that cannot become a write) is passed on as it is. What a SELECT has still to
fetch is fetched without asking: the statement sees what was there when it began.
"""

from __future__ import annotations

import functools
import json
import re
import resource
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, TypeVar

VARIABLE = "RECOLLECT_STATEMENT_GATE"
"""In the environment of a client: the port of its gate."""
BUSY_S = 0.01
_TIMEOUT = re.compile(r"\s*pragma\s+busy_timeout\s*(?:=|\()\s*(\d+)", re.IGNORECASE)
_REAL = sqlite3.connect

R = TypeVar("R")


def hold_statements(port: int) -> None:
    """From now on, in this process."""

    def connect(
        database: Any,
        timeout: float = 5.0,
        detect_types: int = 0,
        isolation_level: Any = "",
        check_same_thread: bool = True,
        factory: Any = sqlite3.Connection,
        cached_statements: int = 128,
        uri: bool = False,
        **options: Any,
    ) -> Any:
        options |= {  # by name: by place they are deprecated in Python 3.13
            "detect_types": detect_types,
            "isolation_level": isolation_level,
            "check_same_thread": check_same_thread,
            "cached_statements": cached_statements,
            "uri": uri,
        }
        if str(database) in ("", ":memory:"):
            return _REAL(database, timeout=timeout, factory=factory, **options)
        kind = _held_kind(_HeldDatabase, factory)
        real_s = BUSY_S if timeout > 0 else 0.0
        made = _REAL(database, timeout=real_s, factory=kind, **options)
        made._gate = _PlaceAtTheGate(port, timeout > 0)
        return made

    sqlite3.connect = sqlite3.dbapi2.connect = connect  # type: ignore[assignment]


class _PlaceAtTheGate:
    """One connection's place at the gate."""

    def __init__(self, port: int, is_patient: bool) -> None:
        self.is_patient = is_patient
        self._one_at_a_time = threading.RLock()
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pass_through(self, sql: str, values: object, in_transaction: bool, act: Callable[[], R]) -> R:
        asked = {"sql": sql, "values": values, "in_transaction": in_transaction}
        with self._one_at_a_time:
            self._ask(json.dumps(asked, default=repr))
            return self._done(act)

    def _done(self, act: Callable[[], R]) -> R:
        while True:
            began, slept = time.perf_counter(), _naps()
            try:
                done = act()
            except sqlite3.Error as error:
                waited = time.perf_counter() - began >= BUSY_S / 2 and _naps() > slept
                code = getattr(error, "sqlite_errorcode", None)
                if code == sqlite3.SQLITE_BUSY and waited and self.is_patient and self._ask("busy") == "go":
                    continue
                self._ask(json.dumps({"error": getattr(error, "sqlite_errorname", "") or str(error)}))
                raise
            self._ask('{"error": ""}')
            return done

    def _ask(self, line: str) -> str:
        self._socket.sendall(line.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            said = self._socket.recv(64)
            if not said:
                raise sqlite3.InterfaceError("the gate is closed")
            answer += said
        return answer.decode().strip()

    def close(self) -> None:
        self._socket.close()


def _naps() -> int:
    """How often this thread has waited: SQLite sleeps between two attempts to get a lock."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class _HeldDatabase(sqlite3.Connection):
    _gate: _PlaceAtTheGate | None = None

    def _pass(self, sql: str, values: object, act: Callable[[], R]) -> R:
        if self._gate is None:
            return act()
        if (timeout := _TIMEOUT.match(sql)) is not None:
            self._gate.is_patient = int(timeout[1]) > 0
        return self._gate.pass_through(sql, values, self.in_transaction, act)

    def cursor(self, factory: Any = sqlite3.Cursor) -> Any:
        return super().cursor(_held_kind(_HeldCursor, factory))

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Any:
        return self.cursor().executemany(sql, rows)

    def executescript(self, script: str, /) -> Any:
        return self.cursor().executescript(script)

    def commit(self) -> None:
        self._end("COMMIT", super().commit)

    def rollback(self) -> None:
        self._end("ROLLBACK", super().rollback)

    def close(self) -> None:
        self._end("ROLLBACK", super().close)
        if self._gate is not None:
            self._gate.close()

    def _end(self, sql: str, act: Callable[[], None]) -> None:
        """Ends a transaction, if there is one."""
        if self.in_transaction:
            self._pass(sql, (), act)
        else:
            act()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is None:
            self.commit()
        else:
            self.rollback()
        return False


class _HeldCursor(sqlite3.Cursor):
    connection: _HeldDatabase

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        if (timeout := _TIMEOUT.match(sql)) is not None:
            shown = f"PRAGMA busy_timeout = {round(BUSY_S * 1000) if int(timeout[1]) else 0}"
            return self.connection._pass(sql, (), functools.partial(super().execute, shown))
        return self.connection._pass(sql, parameters, functools.partial(super().execute, sql, parameters))

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Any:
        if self.connection.isolation_level is None and not self.connection.in_transaction:
            for row in rows:  # each is a transaction of its own
                self.execute(sql, row)
            return self
        rows = list(rows)
        return self.connection._pass(sql, rows, functools.partial(super().executemany, sql, rows))

    def executescript(self, script: str, /) -> Any:
        return self.connection._pass(script, (), functools.partial(super().executescript, script))


@functools.cache
def _held_kind(held: Any, base: Any) -> Any:
    """The class that the store wants, with its statements held."""
    return held if issubclass(held, base) else type(held.__name__, (held, base), {})
