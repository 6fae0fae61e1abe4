"""How long a connection may take, and how many there may be. Without limits, anyone who opens connections and says
nothing can shut the server down: sooner or later there is no file descriptor left for others.

* A request's head must arrive within `HEAD_TIMEOUT_S` of the connection being opened or the previous answer, its body
  within `BODY_TIMEOUT_S` after that, however slowly bytes drip in. Too late is 408.
* An answer that the client does not read is given up after `ANSWER_TIMEOUT_S`.
* Above `connections_max()`, each new connection takes the place of the oldest one still waiting for a request. If all
  of them are being answered, the new one gets 503.
"""

import asyncio
import enum
import resource
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES_MAX = 16 * 1024
CONNECTIONS_MAX = 512
HEAD_TIMEOUT_S = 10.0
BODY_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 300.0
"""Longer than a model may think."""
LINGER_S = 2.0
"""How long a client may take to read a refusal."""


def connections_max() -> int:
    """Half of the file descriptors the process may open: the memory's files and sockets need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, soft // 2)


class _Phase(enum.Enum):
    """What a connection is waiting for."""

    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"


class BoundedConnection(H11Protocol):
    """One connection of uvicorn's HTTP server, with limits."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits_s = {
            _Phase.HEAD: HEAD_TIMEOUT_S,
            _Phase.BODY: BODY_TIMEOUT_S,
            _Phase.ANSWER: ANSWER_TIMEOUT_S,
        }
        self._limit: asyncio.TimerHandle | None = None
        self._phase: _Phase | None = None
        self._opened_at = self.loop.time()
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._follow()
        if len(self.connections) > connections_max():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._follow()

    def on_response_complete(self) -> None:
        self._phase = None  # the next request, which may have arrived already, has its own time limit
        super().on_response_complete()
        self._follow()

    def _follow(self) -> None:
        """Sets the time limit for what the connection waits for now; more bytes of the same do not extend it."""
        if self.cycle is None or self.cycle.response_complete:
            phase = _Phase.HEAD
        else:
            phase = _Phase.BODY if self.cycle.more_body else _Phase.ANSWER
        if phase is not self._phase:
            self._phase = phase
            self._limit_to(self._limits_s[phase], self._too_late)

    def _limit_to(self, seconds: float, end: Callable[[], None]) -> None:
        """Also limits a connection that is closing, which waits for the client to read what was written."""
        self._end_limit()
        self._limit = self.loop.call_later(seconds, end)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_late(self) -> None:
        if self._phase is _Phase.HEAD and self.transport.get_write_buffer_size():
            self._limit_to(ANSWER_TIMEOUT_S, self.transport.abort)  # the last answer is still being read
            return
        begun = self._phase is _Phase.BODY or bool(self.conn.trailing_data[0])
        if (
            begun
            and self._phase is not _Phase.ANSWER
            and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        ):
            self._refuse_late()
        else:
            self.transport.abort()

    def _make_room(self) -> None:
        waiting = [
            each
            for each in self.connections
            if isinstance(each, BoundedConnection) and each is not self and each._phase is not _Phase.ANSWER
        ]
        if waiting:
            min(waiting, key=lambda each: each._opened_at).transport.abort()
        else:
            self._write_refusal(503, "Service Unavailable")
            self.transport.close()
            self._limit_to(LINGER_S, self.transport.abort)

    def _refuse_late(self) -> None:
        """Keeps reading until the client closes: closing with unread bytes sends a reset, which can overtake answers
        that the client has not read yet."""
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # nothing more is read from it or written to it
            self.cycle.message_event.set()
        self.flow.resume_reading()
        self._write_refusal(408, "Request Timeout")
        self.transport.write_eof()
        self._limit_to(LINGER_S, self.transport.abort)

    def _write_refusal(self, status: int, reason: str) -> None:
        head = f"HTTP/1.1 {status} {reason}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        self.transport.write(head.encode("ascii"))
