"""Where the engine is, and which keys a session has there.

``redis://host:6379/0`` is one server; ``redis+cluster://h1:7000,h2:7001`` names some nodes of a cluster, which know the
others; ``redis+sentinel://s1:26379,s2:26379/SERVICE/0`` names sentinels, which know the primary. ``rediss`` in place of
``redis`` is the same with TLS; ``valkey`` is the same as ``redis``.

Keys of a session: ``<prefix>:{s<id>}:m`` (its messages), ``:c`` (its counter), ``:t`` (its turn ids) and ``:f`` (their
fingerprints). The part in braces is what a cluster hashes, so they share a slot; it is never empty, and the id is
percent-escaped, so distinct ids have distinct keys and no id can hold a brace, a colon or a pattern.
"""

from dataclasses import dataclass, field, replace
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

from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from recollect.errors import Refused
from recollect.secret import check_address, split_address
from recollect.stores.redis.slots import Node

_DRIVER_ARGUMENTS = frozenset({"db", "client_name", "socket_keepalive", "username", "password"})
"""Options of an address besides `prefix` and ``ssl_…``; time limits and retries are the store's business."""


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
        """A sentinel: it has no databases, and the servers' credentials are not its own."""
        address = self.at(node)
        left_out = ("db", "username", "password")
        arguments = {name: value for name, value in address.arguments.items() if name not in left_out}
        return replace(address, arguments=arguments)

    @property
    def has_tls(self) -> bool:
        return self.shown.startswith("rediss")

    def connection(self, timeout_s: float) -> AbstractConnection:
        arguments = dict(self.arguments)
        kind = arguments.pop("connection_class", Connection)
        made: AbstractConnection = kind(
            **arguments,
            protocol=2,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        return made

    @property
    def identity_key(self) -> str:
        return f"{self.prefix}:identity"

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
    own = {"prefix", *(["replaced"] if kind == "cluster" else [])}
    for name, _ in query:
        if name not in own | _DRIVER_ARGUMENTS and not name.startswith("ssl_"):
            known = ", ".join(sorted(_DRIVER_ARGUMENTS | own | {"ssl_…"}))
            raise Refused(f"{name}: not an option of a Redis address; known are {known}")
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
        return Address(f"{family}://{shown}", quoted, _driver_arguments(parts))
    login, at, places = parts.netloc.rpartition("@")
    service, path = _service(kind, parts.path)
    first = parts._replace(netloc=f"{login}{at}localhost", path=path)
    return Address(
        f"{family}+{kind}://{places}{f'/{service}' if service else ''}",
        quoted,
        _driver_arguments(first),
        "cluster" if kind == "cluster" else "sentinel",
        tuple(_node(place, 6379 if kind == "cluster" else 26379) for place in places.split(",")),
        service,
        "replaced" in options,
    )


def _driver_arguments(parts: SplitResult) -> dict[str, Any]:
    try:
        arguments = dict(parse_url(urlunsplit(parts)))
    except ValueError as error:
        raise Refused(f"not a Redis address: {error}") from error
    if parts.scheme != "unix" and not (parts.path.strip("/").isdigit() or parts.path in ("", "/")):
        raise Refused(f"{parts.path}: the path of a Redis address is a database's number, such as /0")
    return arguments


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
