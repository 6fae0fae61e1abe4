"""An engine that the user has prepared, by its address. It is used, never broken: no kill, no flush, no KEYS.

Everything a run writes is in a namespace with a random name:

- Redis: a word that is part of every session id that the run uses, and so of every key that a store makes from
  one. At the end the keys with that word are found with SCAN and removed with UNLINK, in batches; in a cluster, on
  every primary.
- PostgreSQL: a database of its own or, for a role that may not create one, a schema, set as the search path.
  `public` follows it only if it holds nothing but extensions: a store must not find others' tables.

A lease (a key, or a comment on the database or schema) lets a later run remove what a killed run left, and nothing
else: see `recollect.verify.providers.lease`. A database whose run was killed before it was commented stays.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlunsplit

from recollect.errors import Refused
from recollect.guarantees import MADE_OF
from recollect.secret import SecretUrl, check_address, shown, split_address
from recollect.verify.host.errors import EngineError, NotOurs, UnknownName
from recollect.verify.host.marker import Marker
from recollect.verify.providers.lease import Candidate, Lease
from recollect.verify.providers.lease import read as read_lease
from recollect.verify.providers.redis_keys import ClusterKeys, RedisKeys, first_that_answers
from recollect.verify.providers.server_address import (
    hosts_of,
    named_primary,
    nodes_of,
    places_of,
    redis_address,
    writing_primary,
)
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
    engine = SCHEMES[scheme]
    if engine == "redis" and kind in ("cluster", "sentinel"):
        return f"redis-{kind}"
    return "postgres-ha" if engine == "postgres" and len(places_of(url)) > 1 else engine


def variable_of(engine: str) -> str | None:
    """Where an address of this engine, or of a group of such servers, is looked for."""
    return VARIABLES.get(MADE_OF.get(engine, engine))


def from_environment(engine: str) -> SecretUrl | None:
    given = os.environ.get(variable_of(engine) or "")
    return SecretUrl(given) if given else None


def without_credentials(url: str) -> str:
    return shown(url)


@dataclass(frozen=True)
class Namespace:
    name: str
    url: str
    """The address for a driver."""
    nodes: Sequence[tuple[str, int]] = ()
    """Of a cluster: host and port of all nodes, as they announce them."""


class RedisNamespace:
    """Database 0 is the default for everybody: if it holds other people's keys, it is refused unless `allow_shared`."""

    def __init__(self, url: str, marker: Marker, *, allow_shared: bool) -> None:
        self.url = url
        self._kind = engine_of(url)
        self._marker = marker
        self._allow_shared = allow_shared
        self.address: resp.Address
        """Of the server, of a node of the cluster, or of the primary that sentinels name."""

    def find(self) -> resp.Address:
        if self._kind == "redis-cluster":
            self.address = first_that_answers(nodes_of(self.url))
        else:
            self.address = (
                named_primary(self.url) if self._kind == "redis-sentinel" else redis_address(self.url)
            )
        return self.address

    def _keys(self) -> RedisKeys:
        return ClusterKeys(nodes_of(self.url)) if self._kind == "redis-cluster" else RedisKeys(self.find())

    def open(self) -> Namespace:
        with self._keys() as keys:
            self._check_kind(str(keys.ask("INFO", "server")))
            self._sweep(keys)
            if keys.address.database == 0 and not self._allow_shared:
                self._refuse_others(keys)
            self._take_lease(keys, "NX")
            nodes = keys.nodes
        return Namespace(self._marker.name, self.url, nodes)

    def _check_kind(self, info: str) -> None:
        place = without_credentials(self.url)
        if "_mode:sentinel" in info:  # redis_mode, or server_mode
            raise EngineError(
                f"{place} is a Sentinel, which keeps no data; give redis+sentinel://host:port/SERVICE instead"
            )
        if "_mode:cluster" in info and self._kind != "redis-cluster":
            raise EngineError(f"{place} is a node of a cluster; give redis+cluster://host:port instead")

    def renew(self) -> None:
        with self._keys() as keys:
            self._take_lease(keys, "XX")

    def _take_lease(self, keys: RedisKeys, when: str) -> None:
        lease = Lease.taken(self._marker, _KEYS, keys.time())
        if not keys.set(_LEASES + self._marker.name, lease.encoded(), when):
            raise NotOurs(
                f"{_LEASES}{self._marker.name} on {without_credentials(self.url)} is no longer ours"
            )

    def close(self) -> None:
        with self._keys() as keys:
            _remove_keys(keys, self._marker.name)

    def _refuse_others(self, keys: RedisKeys) -> None:
        """Keys of other runs are fine. A run takes its lease before it writes and gives it back after its last key is
        gone, so a key that no lease explains and that stays is not a run's."""
        leased: list[str] = []
        for batch in keys.scanned("*"):
            strange = _without(batch, leased)
            if strange:
                leased = [key.removeprefix(_LEASES) for key in self._leases(keys)]
                strange = _without(strange, leased)
            if strange and keys.any_exists(strange):
                raise NotOurs(self._others())

    def _others(self) -> str:
        place = without_credentials(self.url)
        if self._kind == "redis-cluster":
            return f"{place} holds keys of others, and a cluster has one database only; use a cluster that is empty"
        instead = (
            place if self._kind == "redis-sentinel" and place.count("/") == 3 else place.rpartition("/")[0]
        )
        return f"database 0 of {place} holds keys of others; use an empty database such as {instead}/15"

    def _leases(self, keys: RedisKeys) -> list[str]:
        """The keys of all leases, valid or over, that runs of this kit have made."""
        found = [(key, read_lease(keys.text_at(key))) for key in keys.scan(f"{_LEASES}*")]
        return [
            key for key, lease in found if lease and Marker(lease.proof).proves(key.removeprefix(_LEASES))
        ]

    def _sweep(self, keys: RedisKeys) -> None:
        """Removes what killed runs have left: every lease of ours that is over, with its keys."""
        now = keys.time()
        for key in keys.scan(f"{_LEASES}*"):
            found = Candidate(key.removeprefix(_LEASES), _KEYS, keys.text_at(key))
            if found.is_left(now):
                _remove_keys(keys, found.name)


def _remove_keys(keys: RedisKeys, word: str) -> None:
    """Removes all keys with a marker's name in them. The lease goes last, so the next sweep can continue one that was
    killed half-way."""
    own = _LEASES + word
    for _ in range(keys.passes):
        found = [key for key in keys.scan(f"*{word}*") if key != own]
        keys.unlink(found)
        if not found:
            break
    keys.unlink([own])


def _without(keys: list[str], names: list[str]) -> list[str]:
    return [key for key in keys if not any(name in key for name in names)]


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
        self.address: pgwire.Address
        """Of the server, or of the primary among several."""
        self.name = f"{WORD}_{marker.name}"
        self._marker = marker
        self._kind = _DATABASE
        self._number: str | None = None
        self._extensions_only = False
        """Whether `public` holds nothing but extensions and so may be on the search path."""

    def find(self) -> pgwire.Address:
        self.address = writing_primary(self.url, hosts_of(self.url))
        return self.address

    def open(self) -> Namespace:
        with pgwire.Connection(self.find()) as connection:
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
        with pgwire.Connection(self.find()) as connection:
            if not self._still_ours(connection):
                raise NotOurs(f"{self.name} on {without_credentials(self.url)} is no longer ours")
            self._comment(connection)

    def _comment(self, connection: pgwire.Connection) -> None:
        lease = Lease.taken(self._marker, self._kind.thing(str(self._number)), _postgres_time(connection))
        note = pgwire.literal(lease.encoded())
        connection.ask(f"COMMENT ON {self._kind.word} {pgwire.quoted(self.name)} IS {note}")

    def close(self) -> None:
        with pgwire.Connection(self.find()) as connection:
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
        parts = split_address(self.url)
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
