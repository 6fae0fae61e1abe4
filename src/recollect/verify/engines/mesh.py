"""Partitions between the servers of one engine, but not between them and their clients, without root.

Every server announces ports at which a proxy listens. Who is at the other end of a connection is read off its first
bytes: a message of the cluster's bus carries its sender's id, a replica says `REPLCONF listening-port`, a sentinel
names itself. Everybody else is a client, and always passes. Where nothing can be read off, each server is given a port
of its own at which to find another (`stand_between`). A cut link is silent, as a lost network is: nothing is
closed, and what was sent arrives when it is healed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recollect.verify.host.ports import HOST

SENTINELS = "sentinels"
"""All of them, for `Mesh.cut`."""

_SENDER = slice(40, 80)
_REPLICA = re.compile(rb"listening-port\r\n\$\d+\r\n(\d+)\r\n", re.IGNORECASE)
_HEARD_MAX = 4096
_GREETED = 4
"""After so many replies a server would have said who it is."""
_TIMEOUT_S = 30.0

Result = TypeVar("Result")


@dataclass(eq=False)
class _MeshLink:
    to: str
    is_bus: bool
    by: str | None = None
    heard: bytearray = field(default_factory=bytearray)
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False
    replies: int = 0

    @property
    def is_client_s(self) -> bool:
        return not self.is_bus and self.by is None and self.replies > _GREETED


class Mesh:
    """The proxies, in a thread of their own."""

    def __init__(self) -> None:
        self._ids: dict[int, str] = {}
        """By the ports that a replica may say it listens on."""
        self._cuts: set[frozenset[str]] = set()
        self._links: set[_MeshLink] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Server] = []
        self._changed = asyncio.Event()
        self._lost_one_in = 0
        self._rng = random.Random()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="mesh")
        self._thread.start()

    def stand_before(self, name: str, port: int, bus: int | None = None) -> tuple[int, int]:
        """The ports at which the server is reached from now on; the second is that of its bus, if it has one."""
        seen = self._run(self._listen(name, port, is_bus=False))
        self._ids |= {port: name, seen: name}
        return seen, 0 if bus is None else self._run(self._listen(name, bus, is_bus=True))

    def stand_between(self, by: str, name: str, port: int) -> int:
        """The port at which `by`, and nobody else, reaches the server from now on."""
        return self._run(self._listen(name, port, is_bus=False, by=by))

    def cut(self, name: str, others: Iterable[str]) -> None:
        """Silences all links between a server and each of the others, both ways."""
        self._set(self._cuts | {frozenset((name, other)) for other in others})

    def heal(self) -> None:
        """What was held back arrives now."""
        self._set(set())

    def lose(self, name: str) -> None:
        """Ends all links from and to a server, with what they hold: what was sent and had not arrived is gone."""

        async def end() -> None:
            for link in self._links:
                if name in (link.by, link.to):
                    link.ends.set()

        self._run(end())

    def lose_replies(self, one_in: int, rng: random.Random) -> None:
        """Loses a client's replies at random, one in so many, each with its connection; 0 ends that. The server has
        done by then what it was asked. Servers hear each other as before."""
        self._rng, self._lost_one_in = rng, one_in

    def close(self) -> None:
        async def end() -> None:
            for listener in self._listeners:
                listener.close()
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # also of those just accepted
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_S)
        self._loop.close()

    def _set(self, cuts: set[frozenset[str]]) -> None:
        async def change() -> None:
            self._cuts = cuts
            self._changed.set()
            self._changed = asyncio.Event()

        self._run(change())

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_TIMEOUT_S)

    # In the thread --------------------------------------------------------------------------------

    async def _listen(self, name: str, port: int, *, is_bus: bool, by: str | None = None) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = _MeshLink(name, is_bus, by)
            self._links.add(link)
            try:
                with contextlib.suppress(OSError):
                    await self._carry(link, port, reader, writer)
            finally:
                self._links.discard(link)
                writer.transport.abort()

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Not a coroutine: that of a connection which is cancelled when the mesh is closed would be logged.
            task = asyncio.ensure_future(serve(reader, writer))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

        listener = await asyncio.start_server(begin, HOST, 0)
        self._listeners.append(listener)
        found: int = listener.sockets[0].getsockname()[1]
        return found

    async def _carry(
        self, link: _MeshLink, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = await asyncio.open_connection(HOST, port)
        pumps = {
            asyncio.ensure_future(self._pump(link, reader, back, hears=True)),
            asyncio.ensure_future(self._pump(link, there, writer, hears=False)),
            asyncio.ensure_future(link.ends.wait()),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            back.transport.abort()

    async def _pump(
        self, link: _MeshLink, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, hears: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if hears and link.by is None and len(link.heard) < _HEARD_MAX:
                    link.heard += data
                    self._identify(link)
                while link.by is not None and frozenset((link.by, link.to)) in self._cuts:
                    await self._changed.wait()
                if not hears and self._is_lost(link):
                    return
                link.asked = link.asked or hears
                sink.write(data)
                await sink.drain()

    def _is_lost(self, link: _MeshLink) -> bool:
        if not link.asked:
            return False
        link.asked = False
        link.replies += 1
        return bool(self._lost_one_in and link.is_client_s and self._rng.randrange(self._lost_one_in) == 0)

    def _identify(self, link: _MeshLink) -> None:
        if link.is_bus:
            if len(link.heard) >= _SENDER.stop:
                link.by = bytes(link.heard[_SENDER]).decode("ascii", "replace")
        elif found := _REPLICA.search(link.heard):
            link.by = self._ids.get(int(found[1]))
        elif b"sentinel-" in link.heard:  # CLIENT SETNAME
            link.by = SENTINELS
