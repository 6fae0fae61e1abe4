"""Where the engine is, and which keys a session has there.

Keys of a session: ``<prefix>:{s<id>}:m`` (its messages), ``:c`` (its counter), ``:t`` (its turn ids) and ``:f`` (their
fingerprints). The part in braces is what a cluster hashes, so they share a slot; it is never empty, and the id is
percent-escaped, so distinct ids have distinct keys and no id can hold a brace, a colon or a pattern.
"""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode, urlsplit, urlunsplit

from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from recollect.errors import Refused
from recollect.secret import check_address

_DRIVER_ARGUMENTS = frozenset({"db", "client_name", "socket_keepalive", "username", "password"})
"""Options of an address besides `prefix` and ``ssl_…``; time limits and retries are the store's business."""


@dataclass(frozen=True)
class Address:
    shown: str
    """Without credentials, for messages."""
    prefix: str
    arguments: dict[str, Any] = field(repr=False)
    """For the driver, credentials included."""

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

    def session_key(self, name: bytes) -> bytes:
        """The session's id, from the name of one of its keys."""
        return unquote_to_bytes(name[len(self.prefix) + 3 : -3])


def parse_address(url: str) -> Address:
    check_address(url)
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    for name, _ in query:
        if name != "prefix" and name not in _DRIVER_ARGUMENTS and not name.startswith("ssl_"):
            known = ", ".join(sorted(_DRIVER_ARGUMENTS | {"prefix", "ssl_…"}))
            raise Refused(f"{name}: not an option of a Redis address; known are {known}")
    prefix = dict(query).get("prefix", "recollect")
    if not prefix:
        raise Refused("prefix: some text, such as ?prefix=myapp, or nothing for 'recollect'")
    driver_query = urlencode([(name, value) for name, value in query if name != "prefix"])
    scheme = "redis" if parts.scheme == "valkey" else parts.scheme
    try:
        arguments = dict(parse_url(urlunsplit(parts._replace(scheme=scheme, query=driver_query))))
    except ValueError as error:
        raise Refused(f"not a Redis address: {error}") from error
    if scheme != "unix" and not (parts.path.strip("/").isdigit() or parts.path in ("", "/")):
        raise Refused(f"{parts.path}: the path of a Redis address is a database's number, such as /0")
    place = parts.path if scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    return Address(
        f"{parts.scheme}://{place}", quote(prefix.encode("utf-8", "surrogatepass"), safe=""), arguments
    )
