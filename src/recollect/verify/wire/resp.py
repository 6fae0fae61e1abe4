"""A small Redis client: to ask a server whether it is ready, what it is, and how it is configured.

Not a driver: one connection, one request at a time, replies as Python values. Importing redis-py costs 0.1 s
and it retries; a probe at 1 ms intervals wants neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from recollect.verify.wire.stream import Garbled, Stream
from recollect.verify.wire.tls import TlsOptions

Reply = str | int | None | list["Reply"]

_LINE_BYTES_MAX = 1 << 16
_DIGITS_MAX = 20
_ITEMS_MAX = 1 << 20
_DEPTH_MAX = 32


class RespError(Exception):
    """The server answered with an error: `-LOADING …`, `-NOAUTH …`."""


@dataclass(frozen=True)
class Address:
    """Where a Redis server answers: a unix socket, or a host and port."""

    socket: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: TlsOptions | None = None


class Connection(Stream):
    """One connection, logged in and with its database chosen."""

    def __init__(self, address: Address, timeout_s: float = 5.0) -> None:
        super().__init__(address.socket, address.host, address.port, timeout_s)
        try:
            if address.tls is not None:
                context = address.tls.context()
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
            if address.password is not None:
                self.ask("AUTH", *([address.username] if address.username else []), address.password)
            if address.database:
                self.ask("SELECT", str(address.database))
        except BaseException:
            self.close()
            raise

    def ask(self, *words: str) -> Reply:
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            encoded = word.encode("utf-8", "surrogateescape")
            parts.append(b"$%d\r\n%s\r\n" % (len(encoded), encoded))
        self._socket.sendall(b"".join(parts))
        return self._reply()

    def _reply(self, depth: int = 0) -> Reply:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return _text(rest)
        if kind == b"-":
            raise RespError(_text(rest))
        if kind not in (b":", b"$", b"*"):
            raise Garbled(f"the server's answer {line[:80]!r} is not one that Redis gives")
        number = _number(rest)
        if kind == b":":
            return number
        if number == -1:
            return None
        if number < 0:
            raise Garbled(f"the server announces a length of {number}")
        if kind == b"$":
            return _text(self._exactly(number + 2)[:-2])
        if number > _ITEMS_MAX or depth > _DEPTH_MAX:
            raise Garbled(f"the server announces {number} items, {depth} deep")
        return [self._reply(depth + 1) for _ in range(number)]

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > _LINE_BYTES_MAX:
                raise Garbled(f"the server's answer {self._buffer[:80]!r} has no end")
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line


def _number(digits: bytes) -> int:
    if not digits.removeprefix(b"-").isdigit() or len(digits) > _DIGITS_MAX:
        raise Garbled(f"the server says {digits[:80]!r} where Redis has a number")
    return int(digits)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def fields_of(info: Reply) -> dict[str, str]:
    """The reply of INFO, as a mapping."""
    lines = str(info).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
