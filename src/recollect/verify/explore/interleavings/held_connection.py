"""A connection of an event loop whose requests and replies wait until they are chosen.

It never reaches the loop's selector: we send and receive ourselves, so the loop is idle exactly when every task waits.
What is written goes into segments, one for each client and step. `arrive` sends the oldest one to the engine, `hear`
takes its reply, and `deliver` gives that reply to the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import select
import socket
import time
from asyncio import trsock
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from recollect.verify.explore.interleavings.dialogues import Dialogue, SentRequest

ACTOR: contextvars.ContextVar[str] = contextvars.ContextVar("actor", default="*")
"""Whose step this is: a client's name, or * for what a store does by itself."""

RUNNING: contextvars.ContextVar[str] = contextvars.ContextVar("running", default="*")
"""The same, more precisely: which of the client's operations."""

PATIENCE_S = 5.0
QUIET_AFTER_MS = 3
"""An engine whose protocol we do not know has finished its reply once it is silent for this long."""
_CHUNK = 1 << 16

real_clock = time.perf_counter
"""Real time; the store sees virtual time."""


@dataclass
class Segment:
    """What one client wrote to a connection in one go, and what came back."""

    owner: str
    moment: int
    is_behind: bool = False
    """It was begun when another one already waited."""
    data: bytearray = field(default_factory=bytearray)
    operations: set[str] = field(default_factory=set)
    """On whose behalf, more precisely: whatever wrote a part of it."""
    number: int = field(default_factory=itertools.count().__next__)
    """In the order in which they were begun, on whatever connection."""
    request: SentRequest | None = None
    reply: bytes = b""


class HeldConnection(asyncio.Transport):
    """`moment` numbers the steps."""

    def __init__(
        self,
        sock: socket.socket,
        protocol: Any,
        dialogue: Dialogue,
        *,
        number: int,
        loop: asyncio.AbstractEventLoop,
        moment: Callable[[], int],
    ) -> None:
        super().__init__({"socket": trsock.TransportSocket(sock), "sockname": sock.getsockname()})
        with contextlib.suppress(OSError):
            self._extra["peername"] = sock.getpeername()  # type: ignore[attr-defined]
        sock.setblocking(True)
        self.socket, self.dialogue, self.number = sock, dialogue, number
        self.sent = 0
        self.out: list[Segment] = []
        self.asked: Segment | None = None
        self.answers: list[Segment] = []
        self.in_engine = self.gone = False
        self._protocol, self._loop = protocol, loop
        self._moment = moment
        self._inbox = bytearray()
        self._eof = self._closing = False
        self._peeked: tuple[int, Dialogue, SentRequest] | None = None
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)

    # ---- what a driver calls

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        owner, moment = ACTOR.get(), self._moment()
        if not self.out or (self.out[-1].owner, self.out[-1].moment) != (owner, moment):
            self.out.append(Segment(owner, moment, is_behind=bool(self.out)))
        self.out[-1].data += data
        self.out[-1].operations.add(RUNNING.get())

    def writelines(self, parts: Iterable[Any]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        """Closes it; what was already written is still sent."""
        if not self._closing and not self._loop.is_closed():
            self._closing = True
            self._loop.call_soon(self._lost)

    def abort(self) -> None:
        self.close()

    def _lost(self) -> None:
        self._protocol.connection_lost(None)
        left_behind = self.in_engine and self.request is not None and not self.request.waits
        if not self.out and not left_behind:  # the engine goes on with what it was asked, whoever has gone
            self.end()

    def end(self) -> None:
        if not self.gone:
            self.gone = True
            self.socket.close()

    def hang_up(self) -> None:
        """The other end closes it, which an engine may do at any time."""
        self._protocol.eof_received()
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def is_reading(self) -> bool:
        return not self._closing

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Replies come one at a time, when they are chosen: there is nothing to hold back."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignored: a request that waits to be chosen must not make the driver stop writing."""

    def get_write_buffer_size(self) -> int:
        return 0

    # ---- what the scheduler does

    @property
    def operations(self) -> set[str]:
        """Those that have anything under way here."""
        asked = [self.asked] if self.in_engine and self.asked is not None else []
        return set().union(*(segment.operations for segment in (*self.out, *asked, *self.answers)))

    @property
    def oldest(self) -> int:
        """The number of the oldest request that waits for something."""
        return min((segment.number for segment in (*self.out[:1], *self.answers[:1])), default=-1)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way, and the driver has read all that it was given."""
        unread = getattr(getattr(self._protocol, "_stream_reader", None), "_buffer", b"")
        under_way = self.out or self.answers or self.in_engine or self._closing
        return not under_way and not unread and self.dialogue.is_at_rest

    @property
    def next_request(self) -> SentRequest:
        """The request that waits."""
        data = self.out[0].data
        if self._peeked is None or self._peeked[0] != len(data):
            heard = self.dialogue.copy()
            self._peeked = (len(data), heard, heard.request(bytes(data)))
        return self._peeked[2]

    def arrive(self) -> Segment:
        """The oldest request reaches the engine."""
        request = self.next_request
        asked = self.asked = self.out.pop(0)
        assert self._peeked is not None
        self.dialogue, self._peeked, asked.request = self._peeked[1], None, request
        self.in_engine, self.sent = True, self.sent + 1
        try:
            self.socket.sendall(asked.data)
        except OSError:
            self._eof = True
            self._answered()
        return asked

    def hear(self) -> bool:
        """Takes what the engine has said so far, without waiting; whether the reply is whole."""
        quiet_ms = 0 if self.dialogue.framed or not self._inbox else QUIET_AFTER_MS
        while not quiet_ms or self._poll.poll(quiet_ms):
            try:
                data = self.socket.recv(_CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self._inbox += data
            if not data or self.dialogue.reply(data):
                self._eof = not data
                self._answered()
                return True
            quiet_ms = 0 if self.dialogue.framed else QUIET_AFTER_MS
        if self.dialogue.framed or not self._inbox:
            return False
        self._answered()
        return True

    @property
    def request(self) -> SentRequest | None:
        """The request that the engine has."""
        return self.asked.request if self.asked is not None else None

    @property
    def owner(self) -> str:
        """Whose request the engine has."""
        return self.asked.owner if self.asked is not None else "*"

    def fileno(self) -> int:
        return self.socket.fileno()

    def _answered(self) -> None:
        assert self.asked is not None
        self.asked.reply, self._inbox = bytes(self._inbox), bytearray()
        self.in_engine = False
        self.answers.append(self.asked)
        if self._closing and not self.out:
            self.end()

    def deliver(self) -> None:
        """Gives the oldest reply to the protocol."""
        answer = self.answers.pop(0)
        if self._closing:
            return
        if answer.reply:
            self._receive(memoryview(answer.reply))
        if self._eof and not self.answers:
            self.hang_up()

    def _receive(self, reply: memoryview) -> None:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(bytes(reply))
            return
        while reply:
            buffer = memoryview(self._protocol.get_buffer(len(reply)))
            size = min(len(buffer), len(reply))
            buffer[:size], reply = reply[:size], reply[size:]
            self._protocol.buffer_updated(size)
