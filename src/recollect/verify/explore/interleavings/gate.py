"""A gate between one client's process and the engine: each request is held until it is chosen.

The client connects to the gate, which connects to the engine on its behalf. What the client sends is kept; `send` lets
the request through, `hear` takes the engine's answer, and `forward` gives it to the client.
"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit, urlunsplit

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.explore.interleavings.dialogues import Dialogue, SentRequest, dialogue

HOST = "127.0.0.1"
QUIET_AFTER_S = 0.01
"""An engine whose protocol we do not know has finished its reply once it is silent for this long."""
_CHUNK = 1 << 16


@dataclass(eq=False)
class GatedLink:
    """One connection of a client, and ours to the engine."""

    client: socket.socket
    engine: socket.socket
    dialogue: Dialogue
    out: bytearray = field(default_factory=bytearray)
    asked: bytes = b""
    answer: bytearray = field(default_factory=bytearray)
    request: SentRequest | None = None
    in_engine: bool = False
    sent: int = 0
    is_held_back: bool = False
    """It found what it needs locked, and is not let through again before somebody else may have given a lock back."""
    _eof: bool = False
    _looked: tuple[int, bool, bool | None] = (0, False, None)
    """How much had been written when it was last looked at; whether it was whole; and whether it is set-up."""

    @property
    def is_ready(self) -> bool:
        """Whether a whole request waits to be sent."""
        if self.in_engine or not self.out:
            return False
        if self._looked[0] != len(self.out):
            self._looked = (len(self.out), self.dialogue.whole(bytes(self.out)), None)
        return self._looked[1]

    @property
    def is_setup(self) -> bool:
        """Whether the request that is ready is part of opening a connection."""
        size, is_whole, setup = self._looked
        if setup is None:
            setup = self.dialogue.is_setup(bytes(self.out))
            self._looked = (size, is_whole, setup)
        return setup

    def read_client(self) -> bool:
        """Takes what the client sends; False when it has closed the connection."""
        try:
            data = self.client.recv(_CHUNK)
        except OSError:
            data = b""
        self.out += data
        return bool(data)

    def send(self) -> SentRequest:
        self.asked = bytes(self.out)
        self.out.clear()
        self._looked = (0, False, None)
        self.request = self.dialogue.request(self.asked)
        with contextlib.suppress(OSError):  # the engine has ended the connection, which `hear` will see
            self.engine.sendall(self.asked)
        self.in_engine, self.sent = True, self.sent + 1
        return self.request

    def hear(self) -> bool:
        """Takes what the engine has said so far, without waiting; whether the reply is whole."""
        while self.dialogue.framed or not self.answer or self._says_more():
            try:
                data = self.engine.recv(_CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                data = b""
            self.answer += data
            self._eof = not data
            if not data or self.dialogue.reply(data):
                break
        self.in_engine = False
        return True

    def _says_more(self) -> bool:
        return bool(select.select([self.engine], (), (), QUIET_AFTER_S)[0])

    def fileno(self) -> int:
        return self.engine.fileno()

    def forward(self) -> None:
        """Gives the client what the engine said, its silence included."""
        with contextlib.suppress(OSError):
            self.client.sendall(self.answer)
            if self._eof:
                self.client.shutdown(socket.SHUT_WR)
        self.answer.clear()

    def stop(self) -> None:
        """Ends the wait of one that is held back."""
        raise NotImplementedError("only an embedded engine's statements are held back")

    def close(self) -> None:
        self.client.close()
        self.engine.close()


class Gate:
    """One client's way to the engine. Its sockets are registered with the `selector`, with the gate as their data."""

    def __init__(self, endpoint: Endpoint, selector: selectors.BaseSelector) -> None:
        self._endpoint, self._selector = endpoint, selector
        self._listener = socket.create_server((HOST, 0))
        self._selector.register(self._listener, selectors.EVENT_READ, self)
        self._links: dict[int, GatedLink] = {}
        self.connections = 0
        """How many the client has made since it was launched."""

    @property
    def shown(self) -> Endpoint:
        """The engine as the client sees it."""
        port = self._listener.getsockname()[1]
        parts = urlsplit(self._endpoint.url)
        login, at, _ = parts.netloc.rpartition("@")
        url = urlunsplit(parts._replace(netloc=f"{login}{at}{HOST}:{port}"))
        return replace(self._endpoint, url=url, host=HOST, port=port, socket=None, socket_url=None)

    @property
    def environment(self) -> dict[str, str]:
        """What the client needs in its environment."""
        return {}

    @property
    def links(self) -> list[GatedLink]:
        return list(self._links.values())

    @property
    def is_in_engine(self) -> bool:
        """Whether the engine has a request of the client."""
        return any(link.in_engine for link in self._links.values())

    @property
    def ready(self) -> list[GatedLink]:
        return [link for link in self._links.values() if link.is_ready]

    def hear(self, ready: socket.socket) -> None:
        """Reads from a registered socket that has something to say."""
        if ready is self._listener:
            self._accept()
            return
        link = self._links[ready.fileno()]
        if not link.read_client():
            self._drop(link)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        self._links[client.fileno()] = self._linked(client)
        self._selector.register(client, selectors.EVENT_READ, self)

    def _linked(self, client: socket.socket) -> GatedLink:
        if self._endpoint.socket is not None:
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(str(self._endpoint.socket))
        else:
            assert self._endpoint.host is not None
            assert self._endpoint.port is not None
            engine = socket.create_connection((self._endpoint.host, self._endpoint.port))
        return GatedLink(client, engine, dialogue(self._endpoint.engine))

    def _drop(self, link: GatedLink) -> None:
        self._selector.unregister(link.client)
        del self._links[link.client.fileno()]
        link.close()

    def drop_links(self) -> None:
        for link in self.links:
            self._drop(link)

    def close(self) -> None:
        self.drop_links()
        self._selector.unregister(self._listener)
        self._listener.close()
