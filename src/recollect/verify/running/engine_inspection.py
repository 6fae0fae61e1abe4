"""Asks the engine itself, past the store: which test messages does it still hold?

The store's layout is unknown, and need not be known: a test message carries its number in its text, so whatever the
engine returns is searched for that. Used when a read came back short: if the engine has the rows, they are `hidden`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host.errors import EngineError
from recollect.verify.providers.server_address import (
    hosts_of,
    named_primary,
    redis_address,
    writing_primary,
)
from recollect.verify.target import marked_text
from recollect.verify.wire import pgwire, resp

_HEX = re.compile(rb"\\x((?:[0-9a-f]{2})+)")
VALUES_MAX = 200_000


def numbers_in(engine: str, endpoint: Endpoint) -> set[int] | None:
    """The numbers of all test messages that the engine holds; None where it cannot be asked."""
    found: set[int] = set()
    whole = _for_each(engine, endpoint, lambda value: found.update(marked_text.numbers_in(value)))
    return found if whole else None


def holds_none_of(texts: Iterable[str], engine: str, endpoint: Endpoint) -> bool:
    """Whether everything that the engine holds was looked through, and nothing looks like any of the texts. Of each its
    longest word is looked for, as it is and as JSON writes it."""
    words = {max(re.findall(r"\w+", text), key=len) for text in texts if re.search(r"\w", text)}
    needles = [form for word in words for form in {word.encode(), json.dumps(word)[1:-1].encode()}]
    pattern = re.compile(b"|".join(map(re.escape, needles)))
    seen: list[bytes] = []

    def look(value: bytes) -> None:
        seen.extend(pattern.findall(value)[:1])

    return bool(needles) and _for_each(engine, endpoint, look) and not seen


def _for_each(engine: str, endpoint: Endpoint, look: Callable[[bytes], None]) -> bool:
    """Whether all values could be looked at."""
    ask = _ASK.get(engine)
    if ask is None:
        return False
    try:
        for place, value in enumerate(ask(endpoint)):
            look(value)
            if place >= VALUES_MAX:
                return False
    except (OSError, EngineError, resp.RespError, pgwire.PgError, sqlite3.Error):
        return False
    return True


def _redis(endpoint: Endpoint) -> Iterator[bytes]:
    return _held_by(redis_address(endpoint.socket_url or endpoint.url), endpoint)


def _redis_cluster(endpoint: Endpoint) -> Iterator[bytes]:
    """Every primary: a replica answers for no key, and has what its primary had."""
    for node in map(redis_address, endpoint.nodes):
        with resp.Connection(node) as connection:
            is_primary = resp.fields_of(connection.ask("INFO", "replication"))["role"] == "master"
        if is_primary:
            yield from _held_by(node, endpoint)


def _redis_sentinel(endpoint: Endpoint) -> Iterator[bytes]:
    return _held_by(named_primary(endpoint.url), endpoint)


def _held_by(server: resp.Address, endpoint: Endpoint) -> Iterator[bytes]:
    reading = {
        "string": ("GET", ()),
        "list": ("LRANGE", ("0", "-1")),
        "hash": ("HGETALL", ()),
        "set": ("SMEMBERS", ()),
        "zset": ("ZRANGE", ("0", "-1")),
        "stream": ("XRANGE", ("-", "+")),
    }
    with resp.Connection(server) as connection:
        cursor = "0"
        while True:
            match = () if endpoint.namespace is None else ("MATCH", f"*{endpoint.namespace}*")
            reply = connection.ask("SCAN", cursor, "COUNT", "1000", *match)
            assert isinstance(reply, list)
            cursor, keys = str(reply[0]), reply[1]
            assert isinstance(keys, list)
            for key in keys:
                kind = str(connection.ask("TYPE", str(key)))
                if kind in reading:
                    command, rest = reading[kind]
                    yield from _flat(connection.ask(command, str(key), *rest))
            if cursor == "0":
                return


def _flat(reply: object) -> Iterator[bytes]:
    if isinstance(reply, list):
        for item in reply:
            yield from _flat(item)
    elif isinstance(reply, bytes):
        yield reply
    elif isinstance(reply, str):
        yield reply.encode("utf-8", "surrogateescape")


def _postgres(endpoint: Endpoint) -> Iterator[bytes]:
    """Of several hosts, the one that takes writes."""
    url = endpoint.socket_url or endpoint.url
    server = writing_primary(url, hosts_of(url))
    tables = "SELECT quote_ident(schemaname) || '.' || quote_ident(relname) FROM pg_stat_user_tables"
    if endpoint.namespace is not None:  # a database of the run's own, or a schema
        tables += f" WHERE '{endpoint.namespace}' IN (current_database(), schemaname)"
    with pgwire.Connection(server) as connection:
        for (table,) in connection.ask(tables):
            for row in connection.ask(f"SELECT t::text FROM {table} t"):
                raw = (row[0] or "").encode("utf-8", "surrogateescape")
                yield raw
                for digits in _HEX.findall(raw):
                    yield bytes.fromhex(digits.decode())


def _sqlite(endpoint: Endpoint) -> Iterator[bytes]:
    connection = sqlite3.connect(f"file:{endpoint.path}?mode=ro", uri=True, timeout=5)
    connection.text_factory = bytes
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            quoted = '"' + name.decode().replace('"', '""') + '"'
            for row in connection.execute(f"SELECT * FROM {quoted}"):
                yield from (value for value in row if isinstance(value, bytes))
    finally:
        connection.close()


_ASK: dict[str, Callable[[Endpoint], Iterator[bytes]]] = {
    "redis": _redis,
    "redis-cluster": _redis_cluster,
    "redis-sentinel": _redis_sentinel,
    "postgres": _postgres,
    "postgres-ha": _postgres,
    "patroni": _postgres,
    "sqlite": _sqlite,
}
