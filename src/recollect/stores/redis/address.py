"""Where the engine is, and which keys a session has there.

``redis://host:6379/0`` is one server; ``redis+cluster://h1:7000,h2:7001`` names some nodes of a cluster, which know the
others; ``redis+sentinel://s1:26379,s2:26379/SERVICE/0`` names sentinels, which know the primary; if they want another
password than the servers, it is ``?sentinel_password=``. ``rediss`` in place of ``redis`` is the same with TLS;
``valkey`` is the same as ``redis``.

Keys of a session: ``<prefix>:{s<id>}:m`` (its messages), ``:c`` (its counter), ``:t`` (its turn ids) and ``:f`` (their
fingerprints). The part in braces is what a cluster hashes, so they share a slot; it is never empty, and the id is
percent-escaped, so distinct ids have distinct keys and no id can hold a brace, a colon or a pattern.
"""

import contextlib
import os
import time
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, Literal
from urllib.parse import (
    SplitResult,
    parse_qsl,
    quote,
    unquote,
    unquote_to_bytes,
    urlencode,
    urlunsplit,
)

from redis.asyncio.connection import AbstractConnection, Connection, RedisSSLContext, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from recollect.errors import Refused
from recollect.secret import check_address, split_address
from recollect.stores.redis.slots import Node, tag_in

_DRIVER_ARGUMENTS = frozenset({"db", "client_name", "socket_keepalive", "username", "password"})
"""Options of an address besides `prefix` and ``ssl_…``; time limits and retries are the store's business."""
_OWN_OPTIONS = {"cluster": ("replaced",), "sentinel": ("sentinel_username", "sentinel_password")}
_TLS_OPTIONS = frozenset(name for name in signature(SSLConnection).parameters if name.startswith("ssl_"))
_TLS_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_TLS_LIFE_S = 60.0
"""How long certificates are used before they are read again: they may have been renewed."""


class Certificates:
    """What all TLS connections of an address share. The driver would read the certificates anew for each connection,
    the system's among them, and hold up the event loop meanwhile."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._options = {name: value for name, value in arguments.items() if name in _TLS_OPTIONS}
        self._context = self._read()
        self._read_at = time.monotonic()

    def context(self) -> RedisSSLContext:
        if time.monotonic() > self._read_at + _TLS_LIFE_S:
            with contextlib.suppress(Refused):  # just being replaced: those from before still serve
                self._context, self._read_at = self._read(), time.monotonic()
        return self._context

    def _read(self) -> RedisSSLContext:
        for name in _TLS_FILES:
            if name in self._options and not os.access(self._options[name], os.R_OK):
                raise Refused(f"{name}={self._options[name]}: there is no such file, or it may not be read")
        try:
            context: RedisSSLContext = SSLConnection(**self._options).ssl_context
            context.get()
        except (OSError, ValueError, TypeError, RedisError) as error:
            raise Refused(f"the ssl_… options of the address cannot be used: {error}") from error
        return context


@dataclass(frozen=True)
class Address:
    shown: str
    """Without credentials, for messages."""
    prefix: str
    arguments: dict[str, Any] = field(repr=False)
    """For the driver, credentials included."""
    kind: Literal["server", "cluster", "sentinel"] = "server"
    nodes: tuple[Node, ...] = ()
    """For a cluster or sentinels: the nodes that the address names."""
    service: str = ""
    """What the sentinels call the primary."""
    accepts_losses: bool = False
    """``?replaced=accept``: a cluster with an emptied shard is opened anyway."""
    certificates: Certificates | None = field(default=None, repr=False)
    """With TLS."""
    sentinel_login: tuple[str, ...] = field(default=(), repr=False)
    """The command for sentinels that ask for a password: theirs, or else the servers'. Empty if there is none."""

    def at(self, node: Node) -> "Address":
        """One server of several."""
        host, port = node
        scheme = self.shown.partition("+")[0]
        where = f"[{host}]" if ":" in host else host
        return replace(
            self,
            kind="server",
            shown=f"{scheme}://{where}:{port}",
            arguments={**self.arguments, "host": host, "port": port},
        )

    def sentinel(self, node: Node) -> "Address":
        """A sentinel: it has no databases, and credentials only if it asks for them."""
        address = self.at(node)
        left_out = ("db", "username", "password")
        arguments = {name: value for name, value in address.arguments.items() if name not in left_out}
        return replace(address, arguments=arguments)

    @property
    def has_tls(self) -> bool:
        return self.shown.startswith("rediss")

    def connection(self) -> AbstractConnection:
        """For `wire.connect`, which sees to the time limit: redis-py would call `asyncio.wait_for`, which swallows
        cancellations before Python 3.12."""
        arguments = dict(self.arguments)
        kind = arguments.pop("connection_class", Connection)
        made: AbstractConnection = kind(
            **arguments,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        if self.certificates is not None and isinstance(made, SSLConnection):
            made.ssl_context = self.certificates.context()
        return made

    @property
    def identity_key(self) -> str:
        return f"{self.prefix}:identity"

    def traces_key(self, slot: int) -> str:
        """Of sessions in the same slot that were erased lately: a server's address may lead to a cluster, too."""
        return f"{self.prefix}:{{{tag_in(slot)}}}:erased"

    def session_keys(self, key: bytes) -> tuple[str, str, str, str]:
        """Messages, counter, turn ids and fingerprints of a session."""
        stem = f"{self.prefix}:{{s{quote(key, safe='')}}}"
        return f"{stem}:m", f"{stem}:c", f"{stem}:t", f"{stem}:f"

    def pattern(self, kind: str, start: bytes = b"") -> str:
        """Matches the keys of sessions whose ids begin with `start`."""
        return f"{self.prefix}:{{s{quote(start, safe='')}*}}:{kind}"

    def is_session(self, name: bytes, kind: str, start: bytes = b"") -> bool:
        """Whether `pattern` matches the key."""
        begin, end = f"{self.prefix}:{{s{quote(start, safe='')}", f"}}:{kind}"
        return name.startswith(begin.encode()) and name.endswith(end.encode())

    def session_key(self, name: bytes) -> bytes:
        """The session's id, from the name of one of its keys."""
        return unquote_to_bytes(name[len(self.prefix) + 3 : -3])


def parse_address(url: str) -> Address:
    check_address(url)
    parts = split_address(url)
    family, _, kind = parts.scheme.partition("+")
    query = parse_qsl(parts.query, keep_blank_values=True)
    own = {"prefix", *_OWN_OPTIONS.get(kind, ())}
    for name, _ in query:
        if name not in own | _DRIVER_ARGUMENTS and not name.startswith("ssl_"):
            known = ", ".join(sorted(_DRIVER_ARGUMENTS | own | {"ssl_…"}))
            raise Refused(f"{name}: not an option of a Redis address; known are {known}")
        if name.startswith("ssl_") and name not in _TLS_OPTIONS:
            raise Refused(f"{name}: not an option of TLS; known are {', '.join(sorted(_TLS_OPTIONS))}")
    options = dict(query)
    prefix = options.get("prefix", "recollect")
    if not prefix:
        raise Refused("prefix: some text, such as ?prefix=myapp, or nothing for 'recollect'")
    if options.get("replaced", "accept") != "accept":
        raise Refused(f"replaced={options['replaced']}: only 'accept' is known")
    driver_query = urlencode([(name, value) for name, value in query if name not in own])
    if kind == "cluster" and options.get("db", "0") != "0":
        raise Refused(f"db={options['db']}: a cluster has only database 0; leave it out")
    if family != "rediss" and (tls := [name for name in options if name.startswith("ssl_")]):
        raise Refused(f"{tls[0]}: only with TLS, so write rediss{'+' if kind else ''}{kind}://")
    parts = parts._replace(scheme="redis" if family == "valkey" else family, query=driver_query)
    quoted = quote(prefix.encode("utf-8", "surrogatepass"), safe="")
    if not kind:
        shown = parts.path if family == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
        arguments = _driver_arguments(parts)
        return Address(
            f"{family}://{shown}", quoted, arguments, certificates=_certificates(family, arguments)
        )
    login, at, places = parts.netloc.rpartition("@")
    service, path = _service(kind, parts.path)
    arguments = _driver_arguments(parts._replace(netloc=f"{login}{at}localhost", path=path))
    return Address(
        f"{family}+{kind}://{places}{f'/{service}' if service else ''}",
        quoted,
        arguments,
        "cluster" if kind == "cluster" else "sentinel",
        tuple(_node(place, 6379 if kind == "cluster" else 26379) for place in places.split(",")),
        service,
        "replaced" in options,
        _certificates(family, arguments),
        _sentinel_login(options, arguments),
    )


def _sentinel_login(options: dict[str, str], servers: dict[str, Any]) -> tuple[str, ...]:
    user, password = options.get("sentinel_username"), options.get("sentinel_password")
    if user and not password:
        raise Refused("sentinel_username: without a password; give sentinel_password too")
    if not password:
        user, password = servers.get("username"), servers.get("password")
    return ("AUTH", *([user] if user else []), password) if password else ()


def _driver_arguments(parts: SplitResult) -> dict[str, Any]:
    try:
        arguments = dict(parse_url(urlunsplit(parts)))
    except ValueError as error:
        raise Refused(f"not a Redis address: {error}") from error
    if parts.scheme != "unix" and not (parts.path.strip("/").isdigit() or parts.path in ("", "/")):
        raise Refused(f"{parts.path}: the path of a Redis address is a database's number, such as /0")
    return arguments


def _certificates(family: str, arguments: dict[str, Any]) -> Certificates | None:
    return Certificates(arguments) if family == "rediss" else None


def _service(kind: str, path: str) -> tuple[str, str]:
    """What sentinels call the primary, and the rest of the path: the database."""
    if kind == "cluster":
        if path.strip("/") not in ("", "0"):
            raise Refused(f"{path}: a cluster has only database 0; leave the path out")
        return "", ""
    service, slash, database = path.strip("/").partition("/")
    if not service:
        raise Refused(
            "redis+sentinel:// needs the name of the service that the sentinels watch: "
            "redis+sentinel://host1,host2/mymaster"
        )
    return unquote(service), f"{slash}{database}"


def _node(place: str, port: int) -> Node:
    host, colon, given = place.rpartition(":")
    if not colon or given.endswith("]"):
        host, given = place, ""
    if not host:
        raise Refused(
            f"{place!r}: each node is a host and a port, such as redis+cluster://host1:7000,host2:7001"
        )
    return host.strip("[]"), int(given or port)
