"""What an operation sent, as far as this process can see: enough to know how much a refusal refused.

An engine that refuses a command has done nothing for that command. It may have done the rest of the operation: the
store may be at its second command. So a refusal proves that nothing was written only if nothing else that could write
was sent. Sends are seen through Python's sockets, whatever the driver. With a driver in C (libpq), an encrypted
connection or an embedded engine nothing can be seen, and then nothing is known.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

# Redis commands that write nothing. Any other may write.
_READING: frozenset[bytes] = frozenset(
    b"AUTH HELLO SELECT CLIENT PING ECHO INFO COMMAND TIME WATCH UNWATCH READONLY SCRIPT "
    b"GET MGET STRLEN GETRANGE EXISTS TYPE TTL PTTL SCAN KEYS DBSIZE OBJECT "
    b"LRANGE LLEN LINDEX LPOS HGET HMGET HGETALL HLEN HKEYS HVALS HEXISTS HSCAN "
    b"SMEMBERS SCARD SISMEMBER SSCAN ZRANGE ZREVRANGE ZRANGEBYSCORE ZCARD ZSCORE ZCOUNT ZSCAN "
    b"XRANGE XREVRANGE XLEN XREAD XINFO".split()
)
# These may have done part of their work when they are refused.
_IN_PARTS: frozenset[bytes] = frozenset(b"EVAL EVALSHA FCALL MULTI EXEC".split())

_QUERY, _EXECUTE = b"Q", b"E"
_OPENS = (b"BEGIN", b"START")
_CLOSES = (b"COMMIT", b"END")


class Sending:
    """Watches everything this process sends; records one operation at a time."""

    def __init__(self) -> None:
        self._sent: dict[int, bytearray] | None = None
        for name in ("send", "sendall"):
            setattr(socket.socket, name, self._seen(getattr(socket.socket, name)))
        setattr(socket.socket, "sendmsg", self._seen_message(socket.socket.sendmsg))  # noqa: B010

    def begin(self) -> None:
        self._sent = {}

    def only_one_write(self) -> bool:
        """Whether only one command, or one uncommitted transaction, could have written since `begin`."""
        streams = (bytes(stream) for stream in (self._sent or {}).values())
        return [count for count in map(writes_in, streams) if count != 0] == [1]

    def _seen(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def sending(one: socket.socket, data: Any, *rest: Any) -> Any:
            count = send(one, data, *rest)
            self._note(one, data, count)
            return count

        return sending

    def _seen_message(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def sending(one: socket.socket, buffers: Any, *rest: Any) -> Any:
            buffers = list(buffers)
            count = send(one, buffers, *rest)
            self._note(one, b"".join(buffers), count)
            return count

        return sending

    def _note(self, one: socket.socket, data: Any, count: int | None) -> None:
        if self._sent is not None and one.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
            self._sent.setdefault(one.fileno(), bytearray()).extend(memoryview(data)[:count])


def writes_in(stream: bytes) -> int | None:
    """How many commands in a stream may have written; None if that cannot be told."""
    if not stream.strip(b"\0"):
        return 0  # an event loop waking itself up
    try:
        return _redis(stream) if stream[:1] == b"*" else _postgres(stream)
    except (ValueError, IndexError):
        return None


def _redis(stream: bytes) -> int | None:
    names = [name for name in _commands(stream) if name not in _READING]
    return None if _IN_PARTS & set(names) else len(names)


def _commands(stream: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(stream):
        words, place = _number(stream, place, b"*")
        for word in range(words):
            size, place = _number(stream, place, b"$")
            if word == 0:
                yield stream[place : place + size].upper()
            place += size + 2


def _number(stream: bytes, place: int, mark: bytes) -> tuple[int, int]:
    if stream[place : place + 1] != mark:
        raise ValueError(f"{mark!r} expected at {place}")
    end = stream.index(b"\r\n", place)
    return int(stream[place + 1 : end]), end + 2


def _postgres(stream: bytes) -> int | None:
    """Statements outside a transaction count one by one; an uncommitted transaction counts once."""
    statements = [_word(body) if kind == _QUERY else _EXECUTE for kind, body in _messages(stream)]
    if any(word in _CLOSES for word in statements):
        return None
    return 1 if statements and statements[0] in _OPENS else len(statements)


def _messages(stream: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What PostgreSQL is asked to do: simple queries, and executions of prepared statements."""
    place = 0
    while place < len(stream):
        kind = stream[place : place + 1]
        if not kind.isalpha():
            raise ValueError("a connection is opened in between")
        size = int.from_bytes(stream[place + 1 : place + 5])
        if kind in (_QUERY, _EXECUTE):
            yield kind, stream[place + 5 : place + 1 + size]
        place += 1 + size


def _word(query: bytes) -> bytes:
    return (query.upper().replace(b";", b" ").split() or [b""])[0].strip(b"\0")
