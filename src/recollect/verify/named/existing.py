"""Which sessions a database of a released store holds, and how many rows each has, asked of the engine itself.

Tables and keys have the names that the stores give them by default. Nothing of the libraries is imported: these lists
are what their reads are compared with.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from recollect.composite import composite_id
from recollect.errors import CannotOpen
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.wire import pgwire, resp

Listed = Iterator[tuple[str, int | None]]
_SCAN_BATCH = 500
_NO_TABLE = "42P01"


def agents(endpoint: Endpoint) -> Listed:
    return _rows(endpoint, "agent_messages", "session_id")


def agents_branches(endpoint: Endpoint) -> Listed:
    """A read shows one branch, so the rows say nothing."""
    return _names(endpoint, "agent_messages", "session_id")


def agents_redis(endpoint: Endpoint) -> Listed:
    return _lists(endpoint, "agents:session:", ":messages")


def langchain(endpoint: Endpoint) -> Listed:
    return _rows(endpoint, "message_store", "session_id")


def langchain_redis(endpoint: Endpoint) -> Listed:
    return _lists(endpoint, "message_store:", "")


def langchain_postgres(endpoint: Endpoint) -> Listed:
    return _rows(endpoint, "chat_history", "session_id")


def langgraph(endpoint: Endpoint) -> Listed:
    """A row is a state of the whole thread."""
    return _names(endpoint, "checkpoints", "thread_id", "checkpoint_ns = ''")


def llamaindex(endpoint: Endpoint) -> Listed:
    """What was archived is not read."""
    return _rows(endpoint, "chat_history", "key", "status = 'active'")


def llamaindex_redis(endpoint: Endpoint) -> Listed:
    return _lists(endpoint, "", "")


def llamaindex_postgres(endpoint: Endpoint) -> Listed:
    return _asked(endpoint, "chatstore", "SELECT key, cardinality(value) FROM chatstore ORDER BY key")


def adk(endpoint: Endpoint) -> Listed:
    """A session belongs to an app and a user, and its id is made of all three."""
    return _joined(
        _asked_rows(
            endpoint,
            "sessions",
            "SELECT s.app_name, s.user_id, s.id, (SELECT count(*) FROM events e WHERE e.app_name = s.app_name "
            "AND e.user_id = s.user_id AND e.session_id = s.id) FROM sessions s ORDER BY 1, 2, 3",
        )
    )


def adk_redis(endpoint: Endpoint) -> Listed:
    """A session is one JSON document, which says whose it is; the keys beside it are states."""
    with resp.Connection(redis_address(endpoint.url)) as connection:
        for key in _keys(connection, "adk:session:", "", "string"):
            document = _json(connection.ask("GET", key))
            if isinstance(document, dict) and isinstance(document.get("events"), list):
                names = (document.get(name) for name in ("app_name", "user_id", "id"))
                yield composite_id(*map(str, names)), len(document["events"])


def agno(endpoint: Endpoint) -> Listed:
    """A row is a run."""
    table = "agno_sessions" if endpoint.path is not None else "ai.agno_sessions"
    return _names(endpoint, table, "session_id", "session_type = 'agent'")


def mem0(endpoint: Endpoint) -> Listed:
    return _rows(endpoint, "messages", "session_scope")


# ---- how


def _rows(endpoint: Endpoint, table: str, session: str, where: str = "true") -> Listed:
    return _asked(
        endpoint, table, f"SELECT {session}, count(*) FROM {table} WHERE {where} GROUP BY 1 ORDER BY 1"
    )


def _names(endpoint: Endpoint, table: str, session: str, where: str = "true") -> Listed:
    return _asked(endpoint, table, f"SELECT DISTINCT {session}, NULL FROM {table} WHERE {where} ORDER BY 1")


def _joined(rows: list[Any]) -> Listed:
    """The last column counts, and those before it are the id."""
    for *names, count in rows:
        yield composite_id(*map(str, names)), int(count)


def _asked(endpoint: Endpoint, table: str, query: str) -> Listed:
    for name, count in _asked_rows(endpoint, table, query):
        yield str(name), None if count is None else int(count)


def _asked_rows(endpoint: Endpoint, table: str, query: str) -> list[Any]:
    if endpoint.path is not None:
        with closing(sqlite3.connect(endpoint.path)) as connection:
            try:
                return connection.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                raise CannotOpen(f"{error}; it is not a database of this store") from None
    with closing(pgwire.Connection(postgres_address(endpoint.url))) as session:
        try:
            return list(session.ask(query))
        except pgwire.PgError as error:
            if error.code != _NO_TABLE:
                raise
            raise CannotOpen(f"there is no table {table}; it is not a database of this store") from None


def _lists(endpoint: Endpoint, prefix: str, suffix: str) -> Listed:
    """Lists under such keys."""
    with resp.Connection(redis_address(endpoint.url)) as connection:
        for key in _keys(connection, prefix, suffix, "list"):
            length = connection.ask("LLEN", key)
            name = key[len(prefix) : len(key) - len(suffix)]
            yield name, length if isinstance(length, int) else None


def _keys(connection: resp.Connection, prefix: str, suffix: str, kind: str) -> Iterator[str]:
    """Each key once: SCAN may return it twice."""
    seen: set[str] = set()
    cursor = "0"
    while True:
        words = ("SCAN", cursor, "MATCH", f"{prefix}*{suffix}", "COUNT", str(_SCAN_BATCH), "TYPE", kind)
        match connection.ask(*words):
            case [str() as cursor, list() as keys]:
                pass
            case reply:
                raise CannotOpen(f"SCAN was answered with {str(reply)[:80]!r}")
        for key in {str(one) for one in keys} - seen:
            seen.add(key)
            yield key
        if cursor == "0":
            break


def _json(raw: Any) -> Any:
    try:
        return json.loads(raw)
    except (TypeError, ValueError):
        return None  # somebody else's key
