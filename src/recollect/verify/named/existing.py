"""Which sessions a database of a released store holds, and how many rows each has, asked of the engine itself.

Tables and keys have the names that the stores give them by default. Nothing of the libraries is imported: these lists
are what their reads are compared with.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

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


def mem0(endpoint: Endpoint) -> Listed:
    return _rows(endpoint, "messages", "session_scope")


# ---- how


def _rows(endpoint: Endpoint, table: str, session: str, where: str = "true") -> Listed:
    return _asked(
        endpoint, table, f"SELECT {session}, count(*) FROM {table} WHERE {where} GROUP BY 1 ORDER BY 1"
    )


def _names(endpoint: Endpoint, table: str, session: str, where: str = "true") -> Listed:
    return _asked(endpoint, table, f"SELECT DISTINCT {session}, NULL FROM {table} WHERE {where} ORDER BY 1")


def _asked(endpoint: Endpoint, table: str, query: str) -> Listed:
    if endpoint.path is not None:
        with closing(sqlite3.connect(endpoint.path)) as connection:
            try:
                rows = connection.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                raise CannotOpen(f"{error}; it is not a database of this store") from None
    else:
        with closing(pgwire.Connection(postgres_address(endpoint.url))) as session:
            try:
                rows = session.ask(query)
            except pgwire.PgError as error:
                if error.code != _NO_TABLE:
                    raise
                raise CannotOpen(f"there is no table {table}; it is not a database of this store") from None
    for name, count in rows:
        yield str(name), None if count is None else int(count)


def _lists(endpoint: Endpoint, prefix: str, suffix: str) -> Listed:
    """Lists under such keys."""
    seen: set[str] = set()
    with resp.Connection(redis_address(endpoint.url)) as connection:
        cursor = "0"
        while True:
            words = ("SCAN", cursor, "MATCH", f"{prefix}*{suffix}", "COUNT", str(_SCAN_BATCH), "TYPE", "list")
            match connection.ask(*words):
                case [str() as cursor, list() as keys]:
                    pass
                case reply:
                    raise CannotOpen(f"SCAN was answered with {str(reply)[:80]!r}")
            for key in {str(one) for one in keys} - seen:
                seen.add(key)
                length = connection.ask("LLEN", key)
                name = key[len(prefix) : len(key) - len(suffix)]
                yield name, length if isinstance(length, int) else None
            if cursor == "0":
                break
