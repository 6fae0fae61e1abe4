"""An engine that the user has prepared, by its address. It is used, never broken: no kill, no flush, no KEYS.

Everything a run writes is in a namespace with a random name:

- Redis: a word that is part of every session id that the run uses, and so of every key that a store makes from
  one. At the end the keys with that word are found with SCAN and removed with UNLINK, in batches.
- PostgreSQL: a database of its own or, for a role that may not create one, a schema, set as the search path.
  `public` follows it only if it holds nothing but extensions: a store must not find others' tables.

A lease (a key, or a comment on the database or schema) lets a later run remove what a killed run left, and nothing
else: see `recollect.verify.providers.lease`. A database whose run was killed before it was commented stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit, urlunsplit

from recollect.errors import Refused
from recollect.secret import SecretUrl, check_address, shown
from recollect.verify.host.errors import EngineError, NotOurs, UnknownName
from recollect.verify.host.marker import Marker
from recollect.verify.providers.lease import Candidate, Lease
from recollect.verify.providers.lease import read as read_lease
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
VARIABLES = {"redis": "RECOLLECT_REDIS_URL", "postgres": "RECOLLECT_POSTGRES_URL"}
"""By engine, the environment variable for an address that `ps` should not show."""
WORD = "recollect"
_LEASES = f"{WORD}:lease:"
_KEYS = "keys"
"""What a lease on Redis names: Redis gives keys no number of its own."""
_SCAN_BATCH = 500


def engine_of(url: str) -> str:
    scheme = url.partition("://")[0].partition("+")[0]
    if "://" not in url or scheme not in SCHEMES:
        raise UnknownName(
            "address scheme", shown(scheme), SCHEMES, note="Write redis://host:6379/15 or postgresql://…"
        )
    try:
        check_address(url)
    except Refused as refusal:
        raise EngineError(str(refusal)) from None
    kind = url.partition("://")[0].partition("+")[2]
    if kind in ("cluster", "sentinel"):
        raise EngineError(
            f"{shown(url)} names several servers, and the kit can use only one that is running: give "
            f"redis://host:port, or let the kit start its own with --engine redis-{kind}"
        )
    return SCHEMES[scheme]


def from_environment(engine: str) -> SecretUrl | None:
    given = os.environ.get(VARIABLES.get(engine, ""))
    return SecretUrl(given) if given else None


def without_credentials(url: str) -> str:
    return shown(url)


@dataclass(frozen=True)
class Namespace:
    name: str
    url: str
    """The address for a driver."""


class RedisNamespace:
    """Database 0 is the default for everybody: if it holds other people's keys, it is refused unless `allow_shared`."""

    def __init__(self, url: str, marker: Marker, *, allow_shared: bool) -> None:
        self.url = url
        self.address = redis_address(url)
        self._marker = marker
        self._allow_shared = allow_shared

    def open(self) -> Namespace:
        with resp.Connection(self.address) as connection:
            if "_mode:sentinel" in str(connection.ask("INFO", "server")):  # redis_mode, or server_mode
                raise EngineError(
                    f"{without_credentials(self.url)} is a Sentinel, which keeps no data; give the address of the "
                    "primary that it names"
                )
            self._sweep(connection)
            if self.address.database == 0 and not self._allow_shared:
                self._refuse_others(connection)
            self._take_lease(connection, "NX")
        return Namespace(self._marker.name, self.url)

    def renew(self) -> None:
        with resp.Connection(self.address) as connection:
            self._take_lease(connection, "XX")

    def _take_lease(self, connection: resp.Connection, when: str) -> None:
        lease = Lease.taken(self._marker, _KEYS, _redis_time(connection))
        if connection.ask("SET", _LEASES + self._marker.name, lease.encoded(), when) != "OK":
            raise NotOurs(
                f"{_LEASES}{self._marker.name} on {without_credentials(self.url)} is no longer ours"
            )

    def close(self) -> None:
        with resp.Connection(self.address) as connection:
            _remove_keys(connection, self._marker.name)

    def _refuse_others(self, connection: resp.Connection) -> None:
        """Keys of other runs are fine. A run takes its lease before it writes and gives it back after its last key is
        gone, so a key that no lease explains and that stays is not a run's."""
        leased: list[str] = []
        for batch in _scanned(connection, "*"):
            strange = _without(batch, leased)
            if strange:
                leased = [key.removeprefix(_LEASES) for key in self._leases(connection)]
                strange = _without(strange, leased)
            if strange and connection.ask("EXISTS", *strange) != 0:
                instead = without_credentials(self.url).rpartition("/")[0]
                raise NotOurs(
                    f"database 0 of {without_credentials(self.url)} holds keys of others;"
                    f" use an empty database such as {instead}/15"
                )

    def _leases(self, connection: resp.Connection) -> list[str]:
        """The keys of all leases, valid or over, that runs of this kit have made."""
        found = [(key, read_lease(_text_at(connection, key))) for key in _scan(connection, f"{_LEASES}*")]
        return [
            key for key, lease in found if lease and Marker(lease.proof).proves(key.removeprefix(_LEASES))
        ]

    def _sweep(self, connection: resp.Connection) -> None:
        """Removes what killed runs have left: every lease of ours that is over, with its keys."""
        now = _redis_time(connection)
        for key in _scan(connection, f"{_LEASES}*"):
            found = Candidate(key.removeprefix(_LEASES), _KEYS, _text_at(connection, key))
            if found.is_left(now):
                _remove_keys(connection, found.name)


def _redis_time(connection: resp.Connection) -> float:
    match connection.ask("TIME"):
        case [str() as seconds, str()]:
            return float(seconds)
        case reply:
            raise EngineError(f"TIME was answered with {reply!r}, not with seconds and microseconds")


def _text_at(connection: resp.Connection, key: str) -> str | None:
    try:
        value = connection.ask("GET", key)
    except resp.RespError:  # a hash or a list: nothing we wrote
        return None
    return value if isinstance(value, str) else None


def _remove_keys(connection: resp.Connection, word: str) -> None:
    """Removes all keys with a marker's name in them. The lease goes last, so the next sweep can continue one that was
    killed half-way."""
    own = _LEASES + word
    batch: list[str] = []
    for key in _scan(connection, f"*{word}*"):
        if key != own:
            batch.append(key)
        if len(batch) >= _SCAN_BATCH:
            connection.ask("UNLINK", *batch)
            batch = []
    connection.ask("UNLINK", *batch, own)


def _without(keys: list[str], names: list[str]) -> list[str]:
    return [key for key in keys if not any(name in key for name in names)]


def _scan(connection: resp.Connection, pattern: str) -> list[str]:
    return sorted({key for batch in _scanned(connection, pattern) for key in batch})


def _scanned(connection: resp.Connection, pattern: str) -> Iterator[list[str]]:
    """All keys that match, some of them twice, by SCAN: unlike KEYS, it never blocks the server for long."""
    cursor = "0"
    while True:
        reply = connection.ask("SCAN", cursor, "MATCH", pattern, "COUNT", str(_SCAN_BATCH))
        match reply:
            case [str() as cursor, list() as keys]:
                yield [str(key) for key in keys]
            case _:
                raise EngineError(f"SCAN was answered with {reply!r}, not with a cursor and keys")
        if cursor == "0":
            return


@dataclass(frozen=True)
class _NamespaceKind:
    """A database or a schema: what the catalogue calls it, and how it is dropped."""

    word: str
    mine: str
    """The query for number, name and comment of each that the role itself has made."""
    drop: str

    def thing(self, number: str) -> str:
        return f"{self.word.lower()} {number}"


_DATABASE = _NamespaceKind(
    "DATABASE",
    "SELECT oid, datname, shobj_description(oid, 'pg_database') FROM pg_database"
    " WHERE pg_get_userbyid(datdba) = current_user",
    "WITH (FORCE)",
)
_SCHEMA = _NamespaceKind(
    "SCHEMA",
    "SELECT oid, nspname, obj_description(oid, 'pg_namespace') FROM pg_namespace"
    " WHERE pg_get_userbyid(nspowner) = current_user",
    "CASCADE",
)


_PUBLIC_RELATIONS = """
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE nspname = 'public' AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')"""


class PostgresNamespace:
    """The lease holds the number that the catalogue gave our database or schema: one that was restored, renamed or made
    by others under our name has another number."""

    def __init__(self, url: str, marker: Marker) -> None:
        self.url = url
        self.address = postgres_address(url)
        self.name = f"{WORD}_{marker.name}"
        self._marker = marker
        self._kind = _DATABASE
        self._number: str | None = None
        self._extensions_only = False
        """Whether `public` holds nothing but extensions and so may be on the search path."""

    def open(self) -> Namespace:
        with pgwire.Connection(self.address) as connection:
            self._kind = _DATABASE if _may_create_databases(connection) else _SCHEMA
            self._sweep(connection)
            self._make(connection)
            self._extensions_only = connection.value(_PUBLIC_RELATIONS) == "0"
        return Namespace(self.name, self._url_inside())

    def _make(self, connection: pgwire.Connection) -> None:
        """A schema is made together with its lease or not at all; a database cannot be made in a transaction."""
        together = self._kind is _SCHEMA
        if together:
            connection.ask("BEGIN")
        connection.ask(f"CREATE {self._kind.word} {pgwire.quoted(self.name)}")
        self._number = next(number for number, name, _ in self._mine(connection) if name == self.name)
        try:
            self._comment(connection)
        except pgwire.PgError:
            if not together:
                self._drop(connection, self.name, self._kind.drop)
            raise
        if together:
            connection.ask("COMMIT")

    def renew(self) -> None:
        with pgwire.Connection(self.address) as connection:
            if not self._still_ours(connection):
                raise NotOurs(f"{self.name} on {without_credentials(self.url)} is no longer ours")
            self._comment(connection)

    def _comment(self, connection: pgwire.Connection) -> None:
        lease = Lease.taken(self._marker, self._kind.thing(str(self._number)), _postgres_time(connection))
        note = pgwire.literal(lease.encoded())
        connection.ask(f"COMMENT ON {self._kind.word} {pgwire.quoted(self.name)} IS {note}")

    def close(self) -> None:
        with pgwire.Connection(self.address) as connection:
            if self._still_ours(connection):
                self._drop(connection, self.name, self._kind.drop)

    def _still_ours(self, connection: pgwire.Connection) -> bool:
        return any((number, name) == (self._number, self.name) for number, name, _ in self._mine(connection))

    def _mine(self, connection: pgwire.Connection) -> list[tuple[str, str, str | None]]:
        return [
            (str(number), str(name), comment) for number, name, comment in connection.ask(self._kind.mine)
        ]

    def _drop(self, connection: pgwire.Connection, name: str, how: str) -> None:
        connection.ask(f"DROP {self._kind.word} IF EXISTS {pgwire.quoted(name)} {how}")

    def _sweep(self, connection: pgwire.Connection) -> None:
        """Removes what killed runs have left. Nobody is disconnected: a database in use stays for now."""
        now = _postgres_time(connection)
        for number, name, comment in self._mine(connection):
            found = Candidate(name.removeprefix(f"{WORD}_"), self._kind.thing(number), comment)
            if name != found.name and found.is_left(now):
                with contextlib.suppress(pgwire.PgError):
                    self._drop(connection, name, "" if self._kind is _DATABASE else self._kind.drop)

    def _url_inside(self) -> str:
        parts = urlsplit(self.url)
        if self._kind is _DATABASE:
            return urlunsplit(parts._replace(path=f"/{self.name}"))
        path = f"{self.name},public" if self._extensions_only else self.name
        option = f"options={quote(f'-c search_path={path}', safe='')}"
        return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, option)))))


def _postgres_time(connection: pgwire.Connection) -> float:
    return float(str(connection.value("SELECT extract(epoch FROM clock_timestamp())")))


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
