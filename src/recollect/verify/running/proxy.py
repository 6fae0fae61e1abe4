"""A small proxy between the target and its engine, where a network breaks.

It has a thread and an event loop of its own: the runner's thread is busy waiting for clients, and must not delay them.
It knows no protocol. A reply is what the engine sends after the client sent something, which is right for every engine
whose clients ask and wait.

Each control method returns when its effect is in place. Clients reach it over TCP only (a unix socket has no network
to fail); the engine is reached over its unix socket where it has one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit, urlunsplit

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host import ports
from recollect.verify.host.errors import EngineError

_CHUNK_BYTES = 1 << 16
_CONTROL_TIMEOUT_S = 10.0
_LAST_TURNS = 5
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER, on, zero seconds: closing sends RST instead of FIN."""


class Link:
    """One client's connection, and ours to the engine on its behalf."""

    def __init__(self, client: asyncio.StreamWriter, *, held: bool) -> None:
        self.client = client
        self.is_new = held
        """Accepted while nothing passed, and so not yet connected to the engine."""
        self.engine: asyncio.StreamWriter | None = None
        self.flows = asyncio.Event()
        if not held:
            self.flows.set()
        self.asked = False
        self.replies_left = 0
        """How many replies until one is lost, counting that one; 0 while none is to be lost."""

    def reset(self) -> None:
        with contextlib.suppress(OSError):
            raw = self.client.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.end()

    def end(self) -> None:
        self.client.transport.abort()
        if self.engine is not None:
            self.engine.transport.abort()


class Proxy:
    """Forwards one port of loopback to one engine, until told to behave like a network."""

    def __init__(self, engine: Endpoint, rng: random.Random) -> None:
        self._engine = engine
        self._rng = rng
        self._reservation = ports.Reservation()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._delay_s = (0.0, 0.0)
        self._lose_within = 0
        self._hold_new = False
        self.replies_lost = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recollect-proxy", daemon=True)
        self._thread.start()
        self.accept()

    @property
    def port(self) -> int:
        return self._reservation.port

    def in_front(self) -> Endpoint:
        """The engine's endpoint as a client behind this proxy sees it."""
        parts = urlsplit(self._engine.url)
        login, at, _ = parts.netloc.rpartition("@")
        url = urlunsplit(parts._replace(netloc=f"{login}{at}{ports.HOST}:{self.port}"))
        return replace(self._engine, url=url, host=ports.HOST, port=self.port, socket=None, socket_url=None)

    # ---- control, from the runner's thread

    def delay(self, least_s: float, most_s: float) -> None:
        """From now on everything takes this much longer, each way."""
        self._delay_s = (least_s, most_s)

    def lose_replies(self, within: int) -> None:
        """Loses one of every `within` replies of a connection, at random, and the connection with it; 0 ends that.

        The engine has answered by then, so what it was asked is done; the client sees a reset.
        """
        self._lose_within = within

    def reset(self) -> None:
        """Ends every connection with RST."""

        def reset_all() -> None:
            for link in list(self._links):
                link.reset()

        self._in_loop(reset_all)

    def refuse(self) -> None:
        """Refuses new connections, as a host without a listener does. The port stays ours."""
        self._in_loop(lambda: self._server.close() if self._server is not None else None)

    def accept(self) -> None:
        future = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        future.result(_CONTROL_TIMEOUT_S)

    def hold(self) -> None:
        """Nothing gets through, on existing connections or new ones, and nobody sees an error. What is sent is kept."""

        def close_gates() -> None:
            self._hold_new = True
            for link in self._links:
                link.flows.clear()

        self._in_loop(close_gates)

    def release_new(self) -> None:
        """Connections made since `hold` work, as do new ones; older ones stay silent."""
        self._open_gates(lambda link: link.is_new)

    def release(self) -> None:
        """Delivers everything that was held, even from clients that have given up."""
        self._open_gates(lambda link: True)

    def _open_gates(self, wanted: Callable[[Link], bool]) -> None:
        def open_them() -> None:
            self._hold_new = False
            for link in self._links:
                if wanted(link):
                    link.flows.set()

        self._in_loop(open_them)

    def close(self) -> None:
        """Ends all connections, the thread, and the hold on the port."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_CONTROL_TIMEOUT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CONTROL_TIMEOUT_S)
            self._loop.close()
        self._reservation.close()

    def _in_loop(self, act: Callable[[], object]) -> None:
        async def acting() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acting(), self._loop).result(_CONTROL_TIMEOUT_S)

    # ---- forwarding, in the proxy's own thread

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, ports.HOST, self.port, backlog=256)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for _ in range(_LAST_TURNS):  # a connection that was just being accepted joins a few turns later
            for link in list(self._links):
                link.end()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await asyncio.sleep(0.001)  # lets aborted transports close their sockets

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        link = Link(writer, held=self._hold_new)
        self._links.add(link)
        try:
            await link.flows.wait()
            engine_reader, link.engine = await self._connect()
            requests = asyncio.ensure_future(self._requests(link, reader, link.engine))
            try:
                await self._replies(link, engine_reader)
            finally:
                requests.cancel()
                await asyncio.gather(requests, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # either side is gone; the other is told by `end`
        finally:
            self._links.discard(link)
            self._tasks.discard(task)
            link.end()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        engine = self._engine
        if engine.socket is not None:
            return await asyncio.open_unix_connection(str(engine.socket))
        if engine.port is None:
            raise EngineError(f"{engine.engine} has no port and no socket to put a network in front of")
        return await asyncio.open_connection(engine.host, engine.port)

    def _filter(self) -> Callable[[bytes], bytes]:
        """What becomes of one client's requests, piece by piece; here they stay as they are."""
        return bytes

    async def _requests(self, link: Link, reader: asyncio.StreamReader, engine: asyncio.StreamWriter) -> None:
        filtered = self._filter()
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._pass(link)
                link.asked = True
                engine.write(filtered(data))
                await engine.drain()
            await self._pass(link)
            engine.write_eof()

    async def _replies(self, link: Link, reader: asyncio.StreamReader) -> None:
        """Ends when the engine ends the connection, or when a reply is lost."""
        while data := await reader.read(_CHUNK_BYTES):
            if self._is_lost(link):
                link.reset()
                return
            await self._pass(link)
            with contextlib.suppress(OSError):  # a client that left does not stop what it asked for
                link.client.write(data)
                await link.client.drain()
        await self._pass(link)
        with contextlib.suppress(OSError):
            link.client.close()
            await link.client.wait_closed()

    async def _pass(self, link: Link) -> None:
        await link.flows.wait()
        if self._delay_s[1]:
            await asyncio.sleep(self._rng.uniform(*self._delay_s))

    def _is_lost(self, link: Link) -> bool:
        if not self._lose_within or not link.asked:
            return False
        link.asked = False
        if not link.replies_left:
            link.replies_left = self._rng.randint(1, self._lose_within)
        link.replies_left -= 1
        if link.replies_left == 0:
            self.replies_lost += 1
            return True
        return False
