"""A small HTTP proxy in front of a service under test, in a process of its own: it strikes at the right moment.

A test that kills a service "right after the answer" by itself is too late for a window of a few milliseconds. This
process reads the answer on its way, kills the service's whole process group the moment the last byte has arrived, and
only then passes it on to the client: whatever the service wanted to do after answering does not happen.

Run as ``python -S service_proxy.py LISTEN_PORT``. Orders come on standard input, one JSON object per line, and each is
acknowledged with a line. Standard library only, so that it starts fast and needs nothing else of the project.

    {"service": 8000, "group": 1234}                      where the service is, and its process group
    {"strike": "kill" | "drop" | "term", "method": "POST", "path": "/chat"}
    {"strike": null}
    {"delay_s": 0.2}                                      how much longer everything takes, each way
    {"cut": true | false}                                 reset all connections, also new ones, until further notice

``kill``: kill the service after the complete response. ``drop``: discard the complete response and cut the client off.
``term``: ask the service to end when the first piece of the response's body has been passed on.
"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

HEAD_BYTES_MAX = 256 * 1024
PIECE = 64 * 1024
HOP_HEADERS = (b"connection", b"keep-alive", b"proxy-connection", b"expect")


class Orders:
    """The current orders; written by the thread that reads them, read by the connections' threads."""

    def __init__(self) -> None:
        self.service = 0
        self.group = 0
        self.strike: dict[str, str] | None = None
        self.delay_s = 0.0
        self.cut = False
        self.clients: set[socket.socket] = set()
        self.lock = threading.Lock()

    def take_strike(self, method: str, path: str) -> str | None:
        """The strike for this request, if it is the first that matches."""
        with self.lock:
            strike = self.strike
            if strike is None or strike["method"] != method or not path.startswith(strike["path"]):
                return None
            self.strike = None
            return strike["strike"]

    def obey(self, order: dict[str, Any]) -> None:
        with self.lock:
            self.service = order.get("service", self.service)
            self.group = order.get("group", self.group)
            self.delay_s = order.get("delay_s", self.delay_s)
            self.cut = order.get("cut", self.cut)
            if "strike" in order:
                self.strike = order if order["strike"] else None
            for client in self.clients if self.cut else ():
                reset(client)

    @contextlib.contextmanager
    def known(self, client: socket.socket) -> Iterator[None]:
        """Keeps the connection, so that it can be reset."""
        with self.lock:
            if self.cut:
                reset(client)
                raise ConnectionEnded("cut")  # what it has sent already stays unread
            self.clients.add(client)
        try:
            yield
        finally:
            with self.lock:
                self.clients.discard(client)


def reset(client: socket.socket) -> None:
    """The other side sees a reset, and whoever waits for this one here wakes up."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.shutdown(socket.SHUT_RDWR)


class ConnectionEnded(Exception):
    """The other side ended the connection."""


class SocketReader:
    """Reads a socket by line, by count, or as the bytes come."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.waiting = b""

    def head(self) -> bytes:
        while b"\r\n\r\n" not in self.waiting:
            if len(self.waiting) > HEAD_BYTES_MAX:
                raise ConnectionEnded("the head is too long")
            self._more()
        head, _, self.waiting = self.waiting.partition(b"\r\n\r\n")
        return head

    def line(self) -> bytes:
        while b"\r\n" not in self.waiting:
            self._more()
        line, _, self.waiting = self.waiting.partition(b"\r\n")
        return line

    def some(self, most: int) -> bytes:
        """At least one byte and at most `most`."""
        if not self.waiting:
            self._more()
        piece, self.waiting = self.waiting[:most], self.waiting[most:]
        return piece

    def _more(self) -> None:
        piece = self.connection.recv(PIECE)
        if not piece:
            raise ConnectionEnded("the connection ended")
        self.waiting += piece


def headers_of(head: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    first, *lines = head.split(b"\r\n")
    pairs = [line.partition(b":") for line in lines]
    return first, [(name.strip(), value.strip()) for name, _, value in pairs]


def value_of(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for known, value in headers if known.lower() == name), None)


def joined(first: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    kept = [name + b": " + value for name, value in headers if name.lower() not in HOP_HEADERS]
    return b"\r\n".join([first, *kept, b"connection: close", b"", b""])


def body_pieces(stream: SocketReader, headers: list[tuple[bytes, bytes]], *, until_end: bool):  # type: ignore[no-untyped-def]
    """The body as it goes over the wire, piece by piece; ends when it is complete."""
    if (value_of(headers, b"transfer-encoding") or b"").lower() == b"chunked":
        yield from chunks(stream)
        return
    length = value_of(headers, b"content-length")
    if length is not None:
        left = int(length)
        while left:
            piece = stream.some(left)
            left -= len(piece)
            yield piece
    elif until_end:
        with contextlib.suppress(ConnectionEnded):
            while True:
                yield stream.some(PIECE)


def chunks(stream: SocketReader):  # type: ignore[no-untyped-def]
    while True:
        line = stream.line()
        left = int(line.split(b";")[0], 16)
        if left == 0:
            trailer = line + b"\r\n"
            while rest := stream.line():
                trailer += rest + b"\r\n"
            yield trailer + b"\r\n"
            return
        yield line + b"\r\n"
        left += 2
        while left:
            piece = stream.some(left)
            left -= len(piece)
            yield piece


def serve(client: socket.socket, orders: Orders) -> None:
    with client, contextlib.suppress(ConnectionEnded, OSError, ValueError), orders.known(client):
        incoming = SocketReader(client)
        first, headers = headers_of(incoming.head())
        method, path, *_ = first.decode("latin-1").split(" ")
        if (value_of(headers, b"expect") or b"").lower() == b"100-continue":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b"".join(body_pieces(incoming, headers, until_end=False))
        strike = orders.take_strike(method, path)
        time.sleep(orders.delay_s)
        with socket.create_connection(("127.0.0.1", orders.service), timeout=120) as service:
            service.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            service.sendall(joined(first, headers) + body)
            answer(client, SocketReader(service), method, strike, orders)


def answer(
    client: socket.socket, service: SocketReader, method: str, strike: str | None, orders: Orders
) -> None:
    first, headers = headers_of(service.head())
    status = first.split(b" ")[1]
    held = joined(first, headers)
    bodyless = method == "HEAD" or status in (b"204", b"304")
    pieces = iter(()) if bodyless else body_pieces(service, headers, until_end=True)
    time.sleep(orders.delay_s)
    for piece in pieces:
        if strike not in (None, "term"):
            held += piece
            continue
        client.sendall(held + piece)
        held = b""
        if strike == "term":
            strike = None
            os.killpg(orders.group, signal.SIGTERM)
            report({"struck": "term"})
    # Here the response is complete, and the client does not have all of it yet.
    if strike == "kill":
        os.killpg(orders.group, signal.SIGKILL)
        report({"struck": "kill"})
    elif strike == "drop":
        report({"struck": "drop"})
        return
    client.sendall(held)


def report(content: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def be_quick() -> None:
    """Run ahead of everything else on this machine, as far as we are allowed to."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return
    with contextlib.suppress(OSError):
        os.nice(-10)


def listen(listener: socket.socket, orders: Orders) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, orders), daemon=True).start()


def main() -> None:
    be_quick()
    orders = Orders()
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
    report({"port": listener.getsockname()[1]})
    threading.Thread(target=listen, args=(listener, orders), daemon=True).start()
    for line in sys.stdin:
        orders.obey(json.loads(line))
        report({"done": True})


if __name__ == "__main__":
    main()
