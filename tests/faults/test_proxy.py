"""The proxy between two plain sockets: what each kind of broken network looks like from both ends."""

import contextlib
import random
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.running.proxy import Proxy

TIMEOUT_S = 10.0
NOTHING_S = 0.05


class Echo:
    """An engine that answers what it was asked, and remembers it."""

    def __init__(self, listener: socket.socket) -> None:
        self.heard: list[bytes] = []
        self.news = threading.Condition()
        self.listener = listener
        self.listener.listen()
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while True:
                try:
                    data = connection.recv(1 << 16)
                except OSError:
                    return
                if not data:
                    return
                with self.news:
                    self.heard.append(data)
                    self.news.notify_all()
                try:
                    connection.sendall(data)
                except OSError:
                    return

    def wait_for(self, data: bytes) -> bool:
        with self.news:
            return self.news.wait_for(lambda: data in self.heard, TIMEOUT_S)

    def close(self) -> None:
        if self.thread.is_alive():
            self.listener.shutdown(socket.SHUT_RDWR)  # ends the accept
        self.listener.close()
        self.thread.join(TIMEOUT_S)


def _endpoint(**place: object) -> Endpoint:
    url = "redis://user:p%40ss@127.0.0.1:6379/3?protocol=2"
    plain = Endpoint(url=url, engine="redis", product="", version="", policy="", provider="")
    return replace(plain, **place)  # type: ignore[arg-type]


@pytest.fixture
def echo() -> Iterator[Echo]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    echo = Echo(listener)
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    host, port = echo.listener.getsockname()
    proxy = Proxy(_endpoint(host=host, port=port), random.Random(1))
    yield proxy
    proxy.close()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT_S)


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return client.recv(1 << 16)


def is_silent(client: socket.socket) -> bool:
    return not select.select([client], [], [], NOTHING_S)[0]


def test_it_passes_everything_on(proxy: Proxy) -> None:
    with connect(proxy) as one, connect(proxy) as other:
        assert ask(one, b"one") == b"one"
        assert ask(other, b"other") == b"other"
        big = b"x" * 300_000
        one.sendall(big)
        received = b""
        while len(received) < len(big):
            received += one.recv(1 << 16)
        assert received == big


def test_a_unix_socket_behind_it(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    echo = Echo(listener)
    proxy = Proxy(_endpoint(socket=tmp_path / "s"), random.Random(1))
    try:
        with connect(proxy) as client:
            assert ask(client, b"hello") == b"hello"
    finally:
        proxy.close()
        echo.close()


def test_clients_see_only_the_proxy(proxy: Proxy) -> None:
    seen = proxy.in_front()
    assert seen.url == f"redis://user:p%40ss@127.0.0.1:{proxy.port}/3?protocol=2"
    assert (seen.host, seen.port, seen.socket, seen.socket_url) == ("127.0.0.1", proxy.port, None, None)


def test_a_lost_reply_was_asked_for_and_done(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        assert ask(client, b"before") == b"before"
        proxy.lose_replies(within=1)
        with pytest.raises(ConnectionResetError):
            ask(client, b"lost")
    assert b"lost" in echo.heard
    assert proxy.replies_lost == 1
    proxy.lose_replies(within=0)
    with connect(proxy) as client:
        assert ask(client, b"after") == b"after"


def test_one_reply_in_some_is_lost(proxy: Proxy) -> None:
    proxy.lose_replies(within=4)
    for _ in range(20):
        answered = 0
        with connect(proxy) as client:
            try:
                while True:
                    ask(client, b"?")
                    answered += 1
            except ConnectionResetError:
                pass
        assert answered < 4


def test_reset_refused_and_back(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert ask(client, b"hello") == b"hello"
        proxy.refuse()
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
    proxy.accept()
    with connect(proxy) as client:
        assert ask(client, b"again") == b"again"


def test_what_was_held_arrives_after_its_client_left(proxy: Proxy, echo: Echo) -> None:
    client = connect(proxy)
    assert ask(client, b"hello") == b"hello"
    proxy.hold()
    client.sendall(b"given up")
    assert is_silent(client)
    client.close()
    assert b"given up" not in echo.heard
    proxy.release()
    assert echo.wait_for(b"given up")


def test_new_connections_pass_while_old_ones_are_forgotten(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as old:
        assert ask(old, b"hello") == b"hello"
        proxy.hold()
        old.sendall(b"old")
        with connect(proxy) as waiting:
            waiting.sendall(b"waiting")
            assert is_silent(waiting)
            proxy.release_new()
            assert waiting.recv(100) == b"waiting"
        with connect(proxy) as new:
            assert ask(new, b"new") == b"new"
        assert is_silent(old)
        proxy.release()
        assert old.recv(100) == b"old"


def test_a_delay_keeps_the_order(proxy: Proxy) -> None:
    proxy.delay(0.001, 0.01)
    with connect(proxy) as client:
        for number in range(20):
            assert ask(client, b"%d" % number) == b"%d" % number


def test_an_engine_that_is_down_ends_the_connection(proxy: Proxy, echo: Echo) -> None:
    echo.close()
    with connect(proxy) as client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


def test_nothing_is_left(proxy: Proxy) -> None:
    client = connect(proxy)
    port = proxy.port
    proxy.close()
    assert not any(thread.name == "recollect-proxy" for thread in threading.enumerate())
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
    client.close()
