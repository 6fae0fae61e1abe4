"""A connection to PostgreSQL that a thread speaks on by itself: one prepared statement at a time, values in binary.

asyncpg makes the connection (address, login, settings). Then its transport pauses, and its socket is used here. It is
not given back: asyncpg does not know what was said meanwhile.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from recollect.near_socket import NearSocket
from recollect.stores.postgres.abandoned_waits import TOLD, WARNING
from recollect.stores.postgres.hosts import Connection

_BYTES, _INT8, _INT4, _TEXT, _BYTES_ARRAY, _INT4_ARRAY = 17, 20, 23, 25, 1001, 1007
"""PostgreSQL's numbers of the types that are spoken here."""

_int2, _int4, _int8 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_array = struct.Struct(">iiiii")
"""An array with one dimension: how many, whether any is null, the type, how long, and where it begins."""
_no_array = struct.Struct(">iii")
_NULL = _int4.pack(-1)
_SYNC = b"S\0\0\0\4"
_RUN = b"\0\1\0\1" + b"E\0\0\0\x09\0\0\0\0\0" + _SYNC
"""The end of the message that binds: everything comes back in binary. Then run it."""
_WARNING = b"C" + WARNING.encode()
"""The code of a notice, with the letter that says that it is one."""
_HEAD = 5
"""Bytes before what a message says: its kind and its length."""
_READY, _ERROR, _ROW, _DONE, _PARAMETERS, _COLUMNS = b"ZEDCtT"
_NOTICE = b"N"[0]
_IN_PASSING = b"NSA"
"""Notices, changed settings, notifications: an engine may send them at any time."""


class WireRefused(Exception):
    """The engine's answer is an error, or something that is not spoken here."""


class PreparedStatement(NamedTuple):
    begin: bytes
    """Of the message that binds its values."""
    encoders: list[Callable[[Any], bytes]]
    decoders: list[Callable[[bytes], Any]]


class WireAnswer(NamedTuple):
    rows: list[tuple[Any, ...]]
    done: str
    """As the engine says it: ``INSERT 0 1``."""


class PostgresWire:
    """The socket of an idle connection. After an `OSError`, also `TimeoutError`, it is not usable any more."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._transport: Any = connection._transport  # type: ignore[attr-defined]  # there is no public way
        self._transport.pause_reading()
        self._socket = NearSocket(self._transport.get_extra_info("socket").fileno())
        self._statements: dict[str, PreparedStatement] = {}
        self.is_asking = False
        """Stays if a caller was interrupted, or waited for too long: its answer is still to come."""
        self._is_over = False
        """Its commit was abandoned: it is about to be dropped, and whoever used it until then would be cut off."""

    @staticmethod
    def is_possible(connection: Connection) -> bool:
        """Whether its socket carries the bytes as they are."""
        transport: Any = getattr(connection, "_transport", None)
        return transport is not None and transport.get_extra_info("ssl_object") is None

    @property
    def is_usable(self) -> bool:
        """Idle, and not closed by the engine."""
        return not self.is_asking and not self._is_over and self._socket.is_silent

    def run(self, statement: str, values: Sequence[Any], deadline: float) -> WireAnswer:
        """One statement, which is a transaction by itself. After `WireRefused` it has done nothing."""
        known = self._statements.get(statement) or self._prepare(statement, deadline)
        rows: list[tuple[Any, ...]] = []
        done = ""
        for kind, body in self._asked(_bound(known, values), deadline):
            if kind == _ROW:
                rows.append(_row(body, known.decoders))
            elif kind == _DONE:
                done = body[:-1].decode()
        return WireAnswer(rows, done)

    def close(self) -> None:
        """On the loop. asyncpg can only close the connection afterwards."""
        self._socket.close()
        if self.is_asking:
            self.connection.terminate()  # an answer that asyncpg does not expect
        else:
            self._transport.resume_reading()  # it waits for the engine to hang up

    def _prepare(self, statement: str, deadline: float) -> PreparedStatement:
        # Named after what it says: a pooler may give this connection to others, who have statements of their own.
        name = b"recollect_" + hashlib.sha256(statement.encode()).hexdigest()[:32].encode() + b"\0"
        parse = _message(b"P", name + statement.encode() + b"\0\0\0")
        parameters: list[int] = []
        columns: list[int] = []
        for kind, body in self._asked(parse + _message(b"D", b"S" + name) + _SYNC, deadline):
            if kind == _PARAMETERS:
                parameters = [
                    _int4.unpack_from(body, 2 + 4 * at)[0] for at in range(_int2.unpack_from(body)[0])
                ]
            elif kind == _COLUMNS:
                columns = _column_types(body)
        try:
            known = PreparedStatement(
                b"\0" + name + b"\0\1\0\1" + _int2.pack(len(parameters)),
                [_ENCODERS[kind] for kind in parameters],
                [_DECODERS[kind] for kind in columns],
            )
        except KeyError as error:
            raise WireRefused(f"a type that is not spoken here: {error}") from error
        self._statements[statement] = known
        return known

    def _asked(self, request: bytes, deadline: float) -> list[tuple[int, bytes]]:
        """What the engine says until it is ready for the next statement."""
        self.is_asking = True
        self._socket.send(request, deadline)
        replies: list[tuple[int, bytes]] = []
        error: bytes | None = None
        abandoned = False
        buffer = bytearray()
        position = 0
        while True:
            while len(buffer) < position + _HEAD or len(buffer) < _end(buffer, position):
                buffer += self._socket.receive(deadline)
            kind, end = buffer[position], _end(buffer, position)
            body = bytes(buffer[position + _HEAD : end])
            position = end
            if kind == _READY:
                break
            if kind == _ERROR:
                error = body
            elif kind == _NOTICE and _WARNING in body.split(b"\0"):
                abandoned = True
            elif kind not in _IN_PASSING:
                replies.append((kind, body))
        self.is_asking = False
        if error is not None:
            raise WireRefused(error.replace(b"\0", b" ").decode("utf-8", "replace"))
        if abandoned:
            self._is_over = True
            raise ConnectionError(TOLD)
        return replies


def _end(buffer: bytearray, position: int) -> int:
    """Of the message that begins there."""
    return position + 1 + int(_int4.unpack_from(buffer, position + 1)[0])


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + _int4.pack(4 + len(body)) + body


def _bound(statement: PreparedStatement, values: Sequence[Any]) -> bytes:
    parts = [statement.begin]
    for encode, value in zip(statement.encoders, values, strict=True):
        if value is None:
            parts.append(_NULL)
        else:
            raw = encode(value)
            parts += (_int4.pack(len(raw)), raw)
    parts.append(_RUN)
    length = sum(map(len, parts)) - len(_RUN) + 4
    return b"".join((b"B", _int4.pack(4 + length), *parts))


def _row(body: bytes, decoders: Sequence[Callable[[bytes], Any]]) -> tuple[Any, ...]:
    values: list[Any] = []
    position = 2
    for decode in decoders:
        (length,) = _int4.unpack_from(body, position)
        position += 4
        if length < 0:
            values.append(None)
        else:
            values.append(decode(body[position : position + length]))
            position += length
    return tuple(values)


def _column_types(body: bytes) -> list[int]:
    types: list[int] = []
    position = 2
    for _ in range(_int2.unpack_from(body)[0]):
        position = body.index(b"\0", position) + 1
        types.append(_int4.unpack_from(body, position + 6)[0])
        position += 18
    return types


def _packed_array(kind: int, items: Sequence[bytes]) -> bytes:
    if not items:
        return _no_array.pack(0, 0, kind)
    parts = [_array.pack(1, 0, kind, len(items), 1)]
    for item in items:
        parts += (_int4.pack(len(item)), item)
    return b"".join(parts)


def _unpacked_bytes(raw: bytes) -> list[bytes]:
    items: list[bytes] = []
    position = _array.size
    while position < len(raw):
        end = position + 4 + _int4.unpack_from(raw, position)[0]
        items.append(raw[position + 4 : end])
        position = end
    return items


def _same(raw: bytes) -> bytes:
    return raw


_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    _BYTES: _same,
    _INT4: _int4.pack,
    _INT8: _int8.pack,
    _BYTES_ARRAY: lambda items: _packed_array(_BYTES, items),
    _INT4_ARRAY: lambda numbers: _packed_array(_INT4, list(map(_int4.pack, numbers))),
}
_DECODERS: dict[int, Callable[[bytes], Any]] = {
    _BYTES: _same,
    _INT4: lambda raw: _int4.unpack(raw)[0],
    _INT8: lambda raw: _int8.unpack(raw)[0],
    _TEXT: bytes.decode,
    _BYTES_ARRAY: _unpacked_bytes,
}
