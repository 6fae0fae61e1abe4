"""Connections that a store has without our knowledge: through a driver in C, or a client in a thread of its own."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path


class SocketWatch:
    """Compares the sockets of this process with those that are known."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def begin(self) -> None:
        """Sockets that are open now have nothing to do with the store that is opened next."""
        self._known = _open_sockets()

    def ours(self) -> None:
        """Sockets opened since then are ours, too."""
        self._known |= _open_sockets()

    def strangers(self, connections: Iterable[socket.socket]) -> bool:
        """Whether there are sockets other than these connections and those that were there before."""
        held = set()
        for connection in connections:
            with contextlib.suppress(OSError):
                held.add(f"socket:[{os.fstat(connection.fileno()).st_ino}]")
        return bool(_open_sockets() - self._known - held)


def _open_sockets() -> set[str]:
    found = set()
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            name = str(number.readlink())
            if name.startswith("socket:"):
                found.add(name)
    return found
