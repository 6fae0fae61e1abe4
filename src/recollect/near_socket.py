"""A socket that a thread waits on by itself, borrowed from an event loop that no longer reads from it."""

import os
import select
import socket
import time

RECEIVED_BYTES_MAX = 1 << 16


class NearSocket:
    """Its errors are `OSError`; `TimeoutError` if the deadline (of `time.monotonic`) comes first."""

    def __init__(self, number: int) -> None:
        self._socket = socket.socket(fileno=os.dup(number))
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._writable.register(self._socket, select.POLLOUT)

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to read, not even that the other end has closed it."""
        return not self._readable.poll(0)

    def send(self, request: bytes, deadline: float) -> None:
        sent = self._socket.send(request)
        while sent < len(request):
            wait_until(self._writable, deadline)
            sent += self._socket.send(request[sent : sent + RECEIVED_BYTES_MAX])

    def receive(self, deadline: float) -> bytes:
        wait_until(self._readable, deadline)
        data = self._socket.recv(RECEIVED_BYTES_MAX)
        if not data:
            raise ConnectionError("the engine closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()


def wait_until(events: "select.poll", deadline: float) -> None:
    left_s = deadline - time.monotonic()
    if left_s <= 0 or not events.poll(left_s * 1000):
        raise TimeoutError
