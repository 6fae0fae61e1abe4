"""In front of somebody's server: what a store asks for is passed on if it only reads.

Stores create tables when they are opened, and some touch what they read. None of that may happen to a database that is
only looked at, whatever driver the store has. So the store gets the address of this gate:

* PostgreSQL: every session begins with `default_transaction_read_only`, and the server itself refuses to write.
  `statements` keeps it so.
* Redis: a command that is not in `READS` is sent under a name that no server knows. The server answers it with an
  error, in its place among the other answers.

The gate reads what clients send, so their side of it is not encrypted; it is on loopback. A server that insists on TLS
is reached for Redis (`rediss://`), and not for PostgreSQL.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from recollect.verify.auditing.statements import REFUSED, NotItsClient, Statements
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.running.proxy import Link, Proxy

_READS = (
    "AUTH COMMAND DBSIZE DISCARD ECHO EXEC HELLO INFO MULTI PING QUIT SELECT TIME UNWATCH WATCH",
    "DUMP EXISTS EXPIRETIME OBJECT PEXPIRETIME PTTL SCAN TTL TYPE",
    "GET GETRANGE MGET STRLEN HEXISTS HGET HGETALL HKEYS HLEN HMGET HSCAN HSTRLEN HVALS",
    "LINDEX LLEN LPOS LRANGE SCARD SISMEMBER SMEMBERS SMISMEMBER SSCAN",
    "ZCARD ZCOUNT ZLEXCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE",
    "ZREVRANK ZSCAN ZSCORE XINFO XLEN XPENDING XRANGE XREAD XREVRANGE",
    "JSON.ARRLEN JSON.GET JSON.MGET JSON.OBJKEYS JSON.TYPE FT.INFO FT.SEARCH FT._LIST",
)
READS = frozenset(name for line in _READS for name in line.split())
"""Commands of Redis that change nothing."""
CLIENT_READS = frozenset(("GETNAME", "ID", "INFO", "SETINFO", "SETNAME"))
"""What drivers say about themselves."""
READ_ONLY = b"default_transaction_read_only\0on\0"

_PROTOCOL = 3
_WISHES = (80877103, 80877104)
"""For TLS and for GSSAPI."""
_START_BYTES_MAX = 10_000


SCHEMES = {"rediss": "redis", "unix": "redis", "valkey": "redis", "postgres": "postgresql"}
"""As drivers write them."""


class ReadGate(Proxy):
    """Forwards one port of loopback to one server, and passes only what reads."""

    def __init__(self, server: Endpoint) -> None:
        self._tls = server.url.startswith("rediss://")
        super().__init__(server, random.Random(0))

    def in_front(self) -> Endpoint:
        """Over TCP and without TLS, which ends here."""
        endpoint = super().in_front()
        parts = urlsplit(endpoint.url)
        scheme = SCHEMES.get(parts.scheme, parts.scheme)
        path = parts.path
        if parts.scheme == "unix":
            options = dict(piece.partition("=")[::2] for piece in parts.query.split("&"))
            path = f"/{options.get('db', '0')}"
        return replace(endpoint, url=urlunsplit((scheme, parts.netloc, path, "", "")))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self._tls:
            return await super()._connect()
        host, context = self._engine.host, ssl.create_default_context()
        return await asyncio.open_connection(host, self._engine.port, ssl=context, server_hostname=host)

    async def _requests(self, link: Link, reader: asyncio.StreamReader, engine: asyncio.StreamWriter) -> None:
        try:
            if self._engine.engine == "postgres":
                engine.write(await _started(reader, link.client))
            await super()._requests(link, reader, engine)
        except (NotItsClient, asyncio.IncompleteReadError):
            link.reset()

    def _filter(self) -> Callable[[bytes], bytes]:
        return (Statements() if self._engine.engine == "postgres" else Commands()).take


async def _started(reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> bytes:
    """The first message of a PostgreSQL session, which makes it one that only reads. A wish for encryption that comes
    before is refused."""
    while True:
        length, code = struct.unpack("!ii", await reader.readexactly(8))
        if not 8 <= length <= _START_BYTES_MAX:
            raise NotItsClient
        rest = await reader.readexactly(length - 8)
        if code in _WISHES:
            client.write(b"N")
        elif code >> 16 == _PROTOCOL:
            settings = rest[:-1] + READ_ONLY + b"\0"
            return struct.pack("!ii", len(settings) + 8, code) + settings
        else:  # a cancellation: it has a number, and nothing to read
            return struct.pack("!ii", length, code) + rest


class Commands:
    """What a client of Redis asks for; a command is passed on when all of it is there."""

    def __init__(self) -> None:
        self._buffer = b""

    def take(self, data: bytes) -> bytes:
        self._buffer += data
        sent = []
        while (found := _command(self._buffer)) is not None:
            words, taken = found
            sent.append(self._buffer[:taken] if _reads(words) else _unknown(words))
            self._buffer = self._buffer[taken:]
        return b"".join(sent)


def _command(buffer: bytes) -> tuple[list[bytes], int] | None:
    """The words of the first command and its length; None if it is not all there."""
    if not buffer:
        return None
    count, place = _line_number(buffer, 0, b"*")
    words = []
    for _ in range(count):
        if place < 0:
            return None
        length, place = _line_number(buffer, place, b"$")
        if place < 0 or len(buffer) < place + length + 2:
            return None
        words.append(buffer[place : place + length])
        place += length + 2
    return None if place < 0 else (words, place)


def _line_number(buffer: bytes, place: int, kind: bytes) -> tuple[int, int]:
    """The number on this line, and where the next one begins; -1 if the line is not all there."""
    end = buffer.find(b"\r\n", place)
    if end < 0:
        return 0, -1
    text = buffer[place + 1 : end]
    if buffer[place : place + 1] != kind or not text.isdigit() or len(text) > 10:
        raise NotItsClient
    return int(text), end + 2


def _reads(words: list[bytes]) -> bool:
    name, *more = [word[:40].decode("ascii", "replace").upper() for word in words[:2]] or [""]
    return name in READS or (name == "CLIENT" and more[:1] != [] and more[0] in CLIENT_READS)


def _unknown(words: list[bytes]) -> bytes:
    word = REFUSED.encode() + b" ".join(words[:1])[:40]
    return b"*1\r\n$%d\r\n%s\r\n" % (len(word), word)
