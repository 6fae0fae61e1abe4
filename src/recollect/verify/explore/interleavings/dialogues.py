"""Requests and replies as an engine's protocol frames them: what a request is, and when its reply is whole.

A `Dialogue` watches one connection. `request` takes what the client wrote, says in a few words what it is, and what
it touches (its footprint); `reply` takes what the engine answered, and says when the answer is whole. `copy` is for
looking at a request that has not been sent yet.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, Self

from recollect.verify.explore.interleavings.footprints import (
    NOTHING,
    REDIS_ALWAYS_SETUP,
    REDIS_SETUP,
    ROWS,
    WRITES_ALL,
    Footprint,
    of_redis,
    of_sql,
)
from recollect.verify.explore.interleavings.program import spans
from recollect.verify.target.marked_text import numbers_in


class SentRequest(NamedTuple):
    """What a client asked the engine."""

    label: str
    footprint: Footprint
    setup: bool = False
    """Part of opening a connection, which affects nobody else."""
    waits: bool = False
    """The engine may hold it until somebody else has done something."""
    cancels: int | None = None
    """It asks the engine to give up what it does for another connection, by the engine's own number."""

    @property
    def releases(self) -> bool:
        """Whether somebody who waits in the engine may go on because of it. Rows written inside a transaction keep
        others waiting until it ends."""
        return self.cancels is not None or any(write and place != ROWS for place, write in self.footprint)


NUMBERS_PER_SCHEDULE = 1000


def carried(request: bytes, reply: bytes, footprint: Footprint) -> str:
    """Which test messages a request wrote or read, in a few words."""
    wrote, read = _messages(request), _messages(reply)
    if any(write for _, write in footprint):
        return f"writes {spans(wrote)}" if wrote else ""
    return f"reads {spans(read) or 'nothing'}" if footprint else ""


def _messages(data: bytes) -> tuple[int, ...]:
    return tuple(dict.fromkeys(number % NUMBERS_PER_SCHEDULE for number in numbers_in(data)))


class Dialogue:
    """Unknown protocol: the reply is whole when the engine has been quiet for a moment."""

    framed = False
    backend: int | None = None
    """The engine's own number for this connection, if it gives one."""
    error = ""
    """What the engine refused in its last reply, by its own code."""

    def copy(self) -> Self:
        twin = object.__new__(type(self))  # `copy.copy` takes five times as long
        twin.__dict__.update(self.__dict__)
        return twin

    @property
    def is_at_rest(self) -> bool:
        """Whether the connection is as a new one: no transaction is open."""
        return True

    def whole(self, data: bytes) -> bool:
        """Whether what the client wrote so far is a request, and not a part of one."""
        return bool(data)

    def request(self, data: bytes) -> SentRequest:
        return SentRequest(f"{len(data)} bytes", WRITES_ALL)

    def is_setup(self, data: bytes) -> bool:
        """Whether a request that has not been sent yet is part of opening a connection."""
        return self.copy().request(data).setup

    def reply(self, data: bytes) -> bool:
        return False


# ---- Redis

_WAITING = frozenset(b"BLPOP BRPOP BLMOVE BRPOPLPUSH BZPOPMIN BZPOPMAX WAIT WAITAOF XREAD XREADGROUP".split())


class RespDialogue(Dialogue):
    framed = True

    def __init__(self) -> None:
        self._wanted = 0
        self._rest = b""
        self._queued: Footprint | None = None
        self._watched: Footprint = NOTHING
        self._is_open = False
        """Whether it has been used for more than opening it."""

    @property
    def is_at_rest(self) -> bool:
        return self._queued is None and not self._watched

    def whole(self, data: bytes) -> bool:
        if commands_in(data):
            return True
        at = 0
        while 0 <= at < len(data):
            at = _behind(data, at)
        return at == len(data) > 0

    def is_setup(self, data: bytes) -> bool:
        commands = commands_in(data)
        return bool(commands) and self._opens([words[0].upper() for words in commands])

    def _opens(self, names: Iterable[bytes]) -> bool:
        return (REDIS_ALWAYS_SETUP if self._is_open else REDIS_SETUP).issuperset(names)

    def request(self, data: bytes) -> SentRequest:
        commands = commands_in(data)
        if not commands:
            return SentRequest(f"{len(data)} bytes", WRITES_ALL)
        self._wanted += len(commands)
        touched: Footprint = frozenset().union(*map(self._touched, commands))
        names = [words[0].upper() for words in commands]
        if len(names) > 1:
            label = " ".join(name.decode("utf-8", "replace") for name in names)
        else:
            label = " ".join(word.decode("utf-8", "replace").split("\n")[0][:40] for word in commands[0][:2])
        setup = self._opens(names)
        self._is_open = self._is_open or not setup
        return SentRequest(label, touched, setup, waits=any(name in _WAITING for name in names))

    def _touched(self, words: list[bytes]) -> Footprint:
        """Queued commands run at EXEC, which also checks whether anybody wrote to a watched key."""
        name = words[0].upper()
        touched = of_redis(words)
        if name == b"MULTI":
            self._queued = NOTHING
        elif name in (b"EXEC", b"DISCARD"):
            touched = (self._queued or NOTHING) | self._watched if name == b"EXEC" else NOTHING
            self._queued, self._watched = None, NOTHING
        elif name == b"UNWATCH":
            self._watched = NOTHING
        elif self._queued is not None:
            self._queued |= touched
            return NOTHING
        elif name == b"WATCH":
            self._watched |= touched
        return touched

    def reply(self, data: bytes) -> bool:
        self._rest += data
        while self._wanted > 0:
            end = _behind(self._rest, 0)
            if end < 0:
                return False
            pushed, self._rest = self._rest[:1] == b">", self._rest[end:]
            self._wanted -= not pushed
        return True


@lru_cache(16)  # the same request is looked at when it comes, and when it is sent
def commands_in(data: bytes) -> tuple[list[bytes], ...]:
    """The commands of a request; none if it is incomplete, or not made of commands."""
    lines = data.split(b"\r\n")
    found, at = [], 0
    try:
        while at < len(lines) - 1:
            end = at + 1 + 2 * int(lines[at].removeprefix(b"*"))
            words = lines[at + 2 : end : 2]
            if (
                not words
                or lines[at][:1] != b"*"
                or lines[at + 1 : end : 2] != [b"$%d" % len(w) for w in words]
            ):
                return tuple(_commands(data))
            found.append(words)
            at = end
    except (ValueError, IndexError):
        return ()
    return tuple(found) if at == len(lines) - 1 and not lines[at] else ()


def _commands(data: bytes) -> Iterator[list[bytes]]:
    """The same where a word contains what ends a line."""
    at = 0
    while at < len(data):
        if data[at : at + 1] != b"*":
            raise ValueError("no array")
        end = data.index(b"\r\n", at)
        count, at = int(data[at + 1 : end]), end + 2
        if count < 1:
            raise ValueError("no command")
        words = []
        for _ in range(count):
            end = data.index(b"\r\n", at)
            size = int(data[at + 1 : end])
            at = end + 4 + size
            if at > len(data):
                raise ValueError("incomplete")
            words.append(data[end + 2 : at - 2])
        yield words


def _behind(data: bytes, at: int) -> int:
    """The position after the value that begins here, or -1 if it is incomplete."""
    left = 1
    while left:
        end = data.find(b"\r\n", at)
        if end < 0:
            return -1
        kind, head = data[at : at + 1], data[at + 1 : end]
        at, left = end + 2, left - 1
        if kind in _STRINGS and head != b"-1":
            at += int(head) + 2
            if at > len(data):
                return -1
        elif kind in _PARTS:
            left += max(0, int(head)) * _PARTS[kind] + (kind == b"|")
    return at


_STRINGS = frozenset({b"$", b"=", b"!"})
_PARTS = {b"*": 1, b"~": 1, b">": 1, b"%": 2, b"|": 2}
"""What each element of a collection consists of. Attributes come before the value that they belong to."""


# ---- PostgreSQL

_SSL_REQUEST = 80877103
_CANCEL_REQUEST = 80877102
_ABOUT_TYPES = re.compile(
    r"select current_setting\('jit'\)|select set_config\('jit'|with recursive typeinfo_tree"
)
"""What asyncpg asks about types, once per connection."""


@lru_cache(1000)
def _short(sql: str) -> str:
    return " ".join(sql.split())[:60]


@lru_cache(1000)
def _is_about_types(sql: str) -> bool:
    return _ABOUT_TYPES.match(" ".join(sql.lower().split())) is not None


class PgDialogue(Dialogue):
    framed = True

    def __init__(self) -> None:
        self._started = self._flushed = False
        self._wanted = 0
        self._status = b"I"
        self._rest = b""
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}

    def copy(self) -> Self:
        twin = super().copy()
        twin._statements, twin._portals = dict(self._statements), dict(self._portals)
        return twin

    @property
    def is_at_rest(self) -> bool:
        return self._status == b"I"

    def whole(self, data: bytes) -> bool:
        messages = list(_pg_messages(data, started=self._started))
        last, _, end = messages[-1] if messages else (b"", b"", 0)
        return end == len(data) and last in (b"startup", b"S", b"Q", b"p", b"H", b"X")

    def request(self, data: bytes) -> SentRequest:
        texts: list[str] = []
        touched: Footprint = NOTHING
        setup = True
        self._flushed = False
        self.error = ""
        for kind, body, _ in _pg_messages(data, started=self._started):
            sql = self._heard(kind, body)
            if sql is None:
                continue
            texts.append(sql)
            if kind in (b"Q", b"E") and not _is_about_types(sql):
                touched |= of_sql(sql, in_transaction=self._status != b"I")
                setup = False
        label = "; ".join(map(_short, texts)) or "prepare"
        return SentRequest(label, touched, setup, cancels=_cancelled(data) if texts == ["startup"] else None)

    def _heard(self, kind: bytes, body: bytes) -> str | None:
        """Keeps what the message says for later; returns what the engine is told to do, if anything."""
        if kind == b"startup":
            (code,) = struct.unpack_from("!i", body)
            self._started = code != _SSL_REQUEST
            self._wanted += 1
            return "startup" if self._started else "SSLRequest"
        if kind == b"Q":
            self._wanted += 1
            return body[:-1].decode("utf-8", "replace")
        if kind == b"P":
            name, sql = body.split(b"\0")[:2]
            self._statements[name] = sql.decode("utf-8", "replace")
        elif kind == b"B":
            portal, name = body.split(b"\0")[:2]
            self._portals[portal] = self._statements.get(name, "?")
        elif kind == b"E":
            return self._portals.get(body.split(b"\0")[0], "?")
        elif kind == b"S":
            self._wanted += 1
        elif kind == b"H":
            self._flushed = True
        elif kind == b"p":
            self._wanted = 1
        return "terminate" if kind == b"X" else None

    def reply(self, data: bytes) -> bool:
        self._rest += data
        if self._wanted and not self._started:  # the one byte that answers an SSLRequest
            if self._rest:
                self._rest, self._wanted = self._rest[1:], self._wanted - 1
            return self._wanted == 0
        while len(self._rest) >= 5:
            kind = self._rest[:1]
            (size,) = struct.unpack_from("!i", self._rest, 1)
            if len(self._rest) < 1 + size:
                return False
            body, self._rest = self._rest[5 : 1 + size], self._rest[1 + size :]
            if self._ends(kind, body):
                self._wanted = max(0, self._wanted - 1)
        return self._wanted == 0 and not self._rest

    def _ends(self, kind: bytes, body: bytes) -> bool:
        """Whether the engine has said all it has to say and waits for the client."""
        if kind == b"Z":
            self._status = body[:1]
            return True
        if kind == b"K":
            (self.backend,) = struct.unpack_from("!i", body)
        if kind == b"R":
            return bool(struct.unpack_from("!i", body)[0] not in (0, 12))
        if kind == b"E":
            self.error = _code(body)
            return b"SFATAL\0" in body
        return self._flushed and kind in (b"T", b"n") and not self._rest


def _cancelled(data: bytes) -> int | None:
    """The connection whose request is to be given up, if this is what a new connection asks."""
    code, backend = struct.unpack_from("!ii", data, 4) if len(data) >= 12 else (0, 0)
    return backend if code == _CANCEL_REQUEST else None


def _code(body: bytes) -> str:
    """The SQLSTATE of an error."""
    codes = (field[1:] for field in body.split(b"\0") if field[:1] == b"C")
    return next(codes, b"?").decode("ascii", "replace")


def _pg_messages(data: bytes, *, started: bool) -> Iterator[tuple[bytes, bytes, int]]:
    """Kind, body, and the position after it; the first message of a connection has no kind."""
    at = 0
    while at < len(data):
        head = 1 if started else 0
        if len(data) < at + head + 4:
            return
        (size,) = struct.unpack_from("!i", data, at + head)
        end = at + head + size
        if size < 4 or end > len(data):
            return
        kind = data[at : at + 1] if started else b"startup"
        body = data[at + head + 4 : end]
        started = started or body[:4] != struct.pack("!i", _SSL_REQUEST)
        at = end
        yield kind, body, at


def dialogue(engine: str) -> Dialogue:
    if engine == "redis":
        return RespDialogue()
    return PgDialogue() if engine == "postgres" else Dialogue()
