"""An engine that the user has prepared, by its address. Used, never broken: no kill, no flush, no KEYS.

Everything of a run is in a namespace with a random name:

- Redis: a word that is part of every session id that the run uses, and so of every key that a store makes of
  one. At the end the keys with that word are found with SCAN and removed with UNLINK, in batches.
- PostgreSQL: a database of its own, or, for a role that may not create one, a schema that comes first in the
  search path.

A lease (a key; a comment on the database or schema) lets a later run remove what a killed run left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit, urlunsplit

from recollect.verify.host.errors import EngineError, NotOurs, UnknownName
from recollect.verify.providers import lease
from recollect.verify.providers.lease import Lease
from recollect.verify.wire import pgwire, resp

NAME = "url"
SCHEMES = {
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "unix": "redis",
    "postgresql": "postgres",
    "postgres": "postgres",
}
WORD = "recollect"
_SCAN_BATCH = 500


def engine_of(url: str) -> str:
    scheme = url.partition("://")[0].partition("+")[0]
    if "://" not in url or scheme not in SCHEMES:
        raise UnknownName(
            "address scheme", scheme, SCHEMES, note="Write redis://host:6379/15 or postgresql://…"
        )
    return SCHEMES[scheme]


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


@dataclass(frozen=True)
class Namespace:
    name: str
    url: str
    """How a driver reaches it."""


class RedisNamespace:
    """Database 0 is where everybody's keys are: with other people's in it, it is refused unless `allow_shared`."""

    def __init__(self, url: str, token: str, *, allow_shared: bool) -> None:
        self.url = url
        self.address = redis_address(url)
        self.token = token
        self._allow_shared = allow_shared
        self._lease_key = f"{WORD}:lease:{token}"

    def open(self) -> Namespace:
        with resp.Connection(self.address) as connection:
            self._sweep(connection)
            if self.address.database == 0 and not self._allow_shared:
                self._refuse_others(connection)
            self._renew(connection)
        return Namespace(self.token, self.url)

    def renew(self) -> None:
        with resp.Connection(self.address) as connection:
            self._renew(connection)

    def _renew(self, connection: resp.Connection) -> None:
        connection.ask("SET", self._lease_key, Lease.taken_now().encoded())

    def close(self) -> None:
        with resp.Connection(self.address) as connection:
            self._remove(connection, self.token)

    def _refuse_others(self, connection: resp.Connection) -> None:
        others = int(str(connection.ask("DBSIZE")))
        if others:
            instead = without_credentials(self.url).rpartition("/")[0]
            raise NotOurs(
                f"database 0 of {without_credentials(self.url)} holds {others} keys of others;"
                f" use an empty database such as {instead}/15, or say that this one may be shared"
            )

    def _sweep(self, connection: resp.Connection) -> None:
        """What killed runs have left: every lease that is over, with its keys."""
        for key in _scan(connection, f"{WORD}:lease:*"):
            if lease.is_over(str(connection.ask("GET", key))):
                self._remove(connection, key.rpartition(":")[2])

    def _remove(self, connection: resp.Connection, token: str) -> None:
        """The lease goes last: a sweep that is killed half-way is taken up by the next."""
        if not re.fullmatch(r"[a-z0-9]{8,}", token):
            raise EngineError(f"{token!r} is not a namespace of a run; nothing was removed")
        own = f"{WORD}:lease:{token}"
        batch: list[str] = []
        for key in _scan(connection, f"*{token}*"):
            if key != own:
                batch.append(key)
            if len(batch) >= _SCAN_BATCH:
                connection.ask("UNLINK", *batch)
                batch = []
        connection.ask("UNLINK", *batch, own)


def _scan(connection: resp.Connection, pattern: str) -> list[str]:
    """All keys that match, by SCAN: it never blocks the server for long, as KEYS does."""
    cursor = "0"
    found: set[str] = set()
    while True:
        reply = connection.ask("SCAN", cursor, "MATCH", pattern, "COUNT", str(_SCAN_BATCH))
        match reply:
            case [str() as cursor, list() as keys]:
                found.update(str(key) for key in keys)
            case _:
                raise EngineError(f"SCAN was answered with {reply!r}, not with a cursor and keys")
        if cursor == "0":
            return sorted(found)


class PostgresNamespace:
    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.address = postgres_address(url)
        self.name = f"{WORD}_{token}"
        self._kind = "DATABASE"

    def open(self) -> Namespace:
        with pgwire.Connection(self.address) as connection:
            self._kind = "DATABASE" if _may_create_databases(connection) else "SCHEMA"
            self._sweep(connection)
            connection.ask(f"CREATE {self._kind} {pgwire.quoted(self.name)}")
            self._comment(connection)
        return Namespace(self.name, self._url_inside())

    def renew(self) -> None:
        with pgwire.Connection(self.address) as connection:
            self._comment(connection)

    def _comment(self, connection: pgwire.Connection) -> None:
        note = pgwire.literal(Lease.taken_now().encoded())
        connection.ask(f"COMMENT ON {self._kind} {pgwire.quoted(self.name)} IS {note}")

    def close(self) -> None:
        with pgwire.Connection(self.address) as connection:
            self._drop(connection, self.name)

    def _drop(self, connection: pgwire.Connection, name: str) -> None:
        if not re.fullmatch(rf"{WORD}_[a-z0-9]{{8,}}", name):
            raise EngineError(f"{name!r} is not a namespace of a run; nothing was removed")
        how = "WITH (FORCE)" if self._kind == "DATABASE" else "CASCADE"
        connection.ask(f"DROP {self._kind} IF EXISTS {pgwire.quoted(name)} {how}")

    def _sweep(self, connection: pgwire.Connection) -> None:
        rows = connection.ask(
            "SELECT datname, shobj_description(oid, 'pg_database') FROM pg_database"
            if self._kind == "DATABASE"
            else "SELECT nspname, obj_description(oid, 'pg_namespace') FROM pg_namespace"
        )
        for name, comment in rows:
            # One without a comment is being made right now by another run, or is not ours.
            if re.fullmatch(rf"{WORD}_[a-z0-9]{{8,}}", name or "") and comment and lease.is_over(comment):
                self._drop(connection, str(name))

    def _url_inside(self) -> str:
        parts = urlsplit(self.url)
        if self._kind == "DATABASE":
            return urlunsplit(parts._replace(path=f"/{self.name}"))
        option = f"options={quote(f'-c search_path={self.name},public', safe='')}"
        return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, option)))))


def _may_create_databases(connection: pgwire.Connection) -> bool:
    rolls = "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
    return connection.value(rolls) == "t"


def redis_address(url: str) -> resp.Address:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    if parts.scheme == "unix":
        return resp.Address(
            socket=Path(parts.path),
            username=_decoded(parts.username),
            password=_decoded(parts.password),
            database=_number(url, query.get("db", ["0"])[0]),
        )
    database = parts.path.strip("/") or query.get("db", ["0"])[0]
    return resp.Address(
        host=parts.hostname or "127.0.0.1",
        port=_port(url, parts, 6379),
        username=_decoded(parts.username),
        password=_decoded(parts.password),
        database=_number(url, database),
        tls=parts.scheme == "rediss",
    )


def postgres_address(url: str) -> pgwire.Address:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    user = _decoded(parts.username) or "postgres"
    host = query.get("host", [parts.hostname or "127.0.0.1"])[0]
    return pgwire.Address(
        port=_number(url, query["port"][0]) if "port" in query else _port(url, parts, 5432),
        socket_folder=Path(host) if host.startswith("/") else None,
        host=host,
        user=user,
        password=_decoded(parts.password),
        database=unquote(parts.path.strip("/")) or user,
    )


def _decoded(text: str | None) -> str | None:
    return unquote(text) if text else None


def _number(url: str, text: str) -> int:
    if not text.isdigit():
        raise EngineError(f"{without_credentials(url)}: {text!r} is not a number; write redis://host:6379/15")
    return int(text)


def _port(url: str, parts: SplitResult, default: int) -> int:
    try:
        return parts.port or default
    except ValueError as error:
        raise EngineError(f"{without_credentials(url)}: {error}") from error
