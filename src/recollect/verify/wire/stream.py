"""One connection to a server, over a unix socket or TCP: what the clients in this folder are built on."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

MESSAGE_BYTES_MAX = 1 << 28


class Garbled(ConnectionError):
    """The server does not speak the protocol that it should."""


class Stream:
    """An open socket, and what was received but not yet read; a context manager.

    Raises OSError when the server cannot be reached, went away, or speaks another protocol (`Garbled`).
    """

    def __init__(self, path: Path | None, host: str, port: int, timeout_s: float) -> None:
        self._buffer = b""
        self._socket = (
            socket.create_connection((host, port), timeout=timeout_s)
            if path is None
            else _connected(path, timeout_s)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        if not 0 <= size <= MESSAGE_BYTES_MAX:
            raise Garbled(f"the server announces a message of {size} bytes")
        while len(self._buffer) < size:
            self._receive()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _receive(self) -> None:
        received = self._socket.recv(1 << 16)
        if not received:
            raise ConnectionResetError("the server closed the connection")
        self._buffer += received


def _connected(path: Path, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection
