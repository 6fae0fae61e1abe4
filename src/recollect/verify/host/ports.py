"""Loopback TCP ports that are ours for as long as an engine exists, even while it is down.

Asking for a free port and closing it again is a race. Here the port stays bound by us, without listening: the
kernel gives it to nobody else, and lets the server bind and listen on it because both sockets have
SO_REUSEADDR and only one of them listens. Between a kill and a restart connections are refused, as they are
when a server is down.
"""

from __future__ import annotations

import socket

from recollect.verify.host.errors import EngineError

HOST = "127.0.0.1"


class Reservation:
    """One port. `close()` gives it back."""

    def __init__(self, port: int | None = None) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Bound without SO_REUSEADDR, so that two reservations never share a port; set afterwards for the
            # server.
            self._socket.bind((HOST, port or 0))
        except OSError as error:
            self._socket.close()
            raise EngineError(
                f"port {port} of {HOST} is not free: {error.strerror}; leave it out to get one that is"
            ) from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()
