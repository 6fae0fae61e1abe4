"""A small PostgreSQL client: to ask a server whether it is ready and how it is configured, and to control its
replicas.

Not a driver: simple queries, every value as text, one connection. A driver costs 0.2 s to import and an event
loop or a C library to run; a probe at 1 ms intervals wants neither. It knows the authentication methods that
users' servers ask for: trust, cleartext, md5 and SCRAM-SHA-256 (RFC 5802, without channel binding).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from recollect.verify.wire.stream import Garbled, Stream

Row = tuple[str | None, ...]
_PROTOCOL_3_0 = 196608
_SCRAM_ROUNDS_MAX = 1_000_000
_AUTH_OK, _AUTH_CLEARTEXT, _AUTH_MD5, _AUTH_SASL = 0, 3, 5, 10


class PgError(Exception):
    """The server's own error: its SQLSTATE and its message."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(f"{fields.get('M', '?')} ({fields.get('C', '?')})")
        self.code = fields.get("C", "")


@dataclass(frozen=True)
class Address:
    """Where a PostgreSQL server answers: a folder with its unix socket, or a host; always a port."""

    port: int
    socket_folder: Path | None = None
    host: str = "127.0.0.1"
    user: str = "postgres"
    password: str | None = field(default=None, repr=False)
    database: str = "postgres"


class Connection(Stream):
    """One connection in autocommit."""

    def __init__(self, address: Address, timeout_s: float = 10.0) -> None:
        self._address = address
        folder = address.socket_folder
        path = None if folder is None else folder / f".s.PGSQL.{address.port}"
        super().__init__(path, address.host, address.port, timeout_s)
        try:
            self._start_up()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        try:
            self._send(b"X", b"")
        except OSError:
            pass
        finally:
            super().close()

    def ask(self, sql: str) -> list[Row]:
        """The rows of the last statement that has any; raises PgError."""
        self._send(b"Q", sql.encode() + b"\0")
        rows: list[Row] = []
        error: PgError | None = None
        while True:
            kind, body = self._message()
            if kind == b"T":
                rows = []
            elif kind == b"D":
                rows.append(_row(body))
            elif kind == b"E":
                error = PgError(_fields(body))
            elif kind == b"Z":
                if error is not None:
                    raise error
                return rows

    def value(self, sql: str) -> str | None:
        """The first column of the first row."""
        rows = self.ask(sql)
        if not rows or not rows[0]:
            raise Garbled(f"the server has no answer to {sql}")
        return rows[0][0]

    def _start_up(self) -> None:
        address = self._address
        words = ("user", address.user, "database", address.database, "client_encoding", "UTF8")
        body = struct.pack("!i", _PROTOCOL_3_0) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
        self._socket.sendall(struct.pack("!i", len(body) + 4) + body)
        while True:
            kind, body = self._message()
            if kind == b"R":
                self._authenticate(body)
            elif kind == b"E":
                raise PgError(_fields(body))
            elif kind == b"Z":
                return

    def _authenticate(self, body: bytes) -> None:
        method = _integer(body, 0)
        if method == _AUTH_OK:
            return
        password = self._address.password
        if password is None:
            raise PgError({"C": "28P01", "M": "the server asks for a password and the address has none"})
        if method == _AUTH_CLEARTEXT:
            self._send(b"p", password.encode() + b"\0")
        elif method == _AUTH_MD5:
            inner = hashlib.md5((password + self._address.user).encode()).hexdigest()
            self._send(b"p", b"md5" + hashlib.md5(inner.encode() + body[4:8]).hexdigest().encode() + b"\0")
        elif method == _AUTH_SASL:
            self._scram(password)
        else:
            raise PgError({"C": "28000", "M": f"the server asks for authentication method {method}"})

    def _scram(self, password: str) -> None:
        nonce = base64.b64encode(os.urandom(18)).decode()
        first = f"n=,r={nonce}"
        initial = f"n,,{first}".encode()
        self._send(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(initial)) + initial)
        server_first = self._sasl_message()
        told, salt, rounds = _challenge(server_first)
        if not told["r"].startswith(nonce):
            raise PgError({"C": "28000", "M": "the server's SCRAM nonce is not an extension of ours"})
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        unproven = f"c=biws,r={told['r']}"
        transcript = f"{first},{server_first},{unproven}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), transcript, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._send(b"p", f"{unproven},p={base64.b64encode(proof).decode()}".encode())
        expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), transcript, "sha256")
        if self._sasl_message() != f"v={base64.b64encode(expected).decode()}":
            raise PgError({"C": "28000", "M": "the server does not know the password it asked for"})

    def _sasl_message(self) -> str:
        kind, body = self._message()
        if kind == b"E":
            raise PgError(_fields(body))
        return _decoded(body[4:])

    def _send(self, kind: bytes, body: bytes) -> None:
        self._socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def _message(self) -> tuple[bytes, bytes]:
        header = self._exactly(5)
        (size,) = struct.unpack("!i", header[1:])
        return header[:1], self._exactly(size - 4)


def quoted(name: str) -> str:
    """An identifier, safe inside a statement."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string constant, safe inside a statement."""
    return "'" + text.replace("'", "''") + "'"


def _row(body: bytes) -> Row:
    columns = int.from_bytes(body[:2], "big")
    offset = 2
    values: list[str | None] = []
    for _ in range(columns):
        size = _integer(body, offset)
        offset += 4
        if size < 0:
            values.append(None)
        elif offset + size > len(body):
            raise Garbled(f"a value of {size} bytes in a row of {len(body)}")
        else:
            values.append(_decoded(body[offset : offset + size]))
            offset += size
    return tuple(values)


def _integer(body: bytes, offset: int) -> int:
    if offset + 4 > len(body):
        raise Garbled(f"a message of {len(body)} bytes ends within a number")
    return int.from_bytes(body[offset : offset + 4], "big", signed=True)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Garbled(f"the server's text is not UTF-8: {error}") from error


def _challenge(text: str) -> tuple[dict[str, str], bytes, int]:
    """The server's challenge to a client that knows the password. The server chooses how often it is hashed: without
    a bound, a malicious one could keep us busy for days."""
    told = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
    try:
        salt, rounds = base64.b64decode(told["s"], validate=True), int(told["i"])
    except (KeyError, ValueError) as error:
        raise Garbled(f"the server's SCRAM challenge cannot be read: {error!r}") from error
    if "r" not in told or not 1 <= rounds <= _SCRAM_ROUNDS_MAX:
        raise Garbled(
            f"the server's SCRAM challenge has {rounds} rounds; at most {_SCRAM_ROUNDS_MAX} are done"
        )
    return told, salt, rounds


def _fields(body: bytes) -> dict[str, str]:
    parts = (part for part in body.split(b"\0") if part)
    return {part[:1].decode("latin-1"): part[1:].decode(errors="replace") for part in parts}
