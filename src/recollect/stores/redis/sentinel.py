"""One primary that sentinels name, and another one after a failover.

Nothing tells a client that its primary was replaced for as long as that one answers: one that is cut off from the
sentinels takes writes that are lost when it comes back. So all sentinels are asked twice a second and after every new
connection, and what most of those that answer say counts; connections to anybody else end. A sentinel may name a server
that has not taken over yet: that one refuses to be opened as a replica, and is asked again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from recollect.errors import CannotOpen, CredentialsRefused, EngineUnavailable
from recollect.store import Options
from recollect.stores.redis.address import Address
from recollect.stores.redis.errors import not_connected
from recollect.stores.redis.routed import LOOK_S, RETRY_MAX_S, RoutedServers
from recollect.stores.redis.servers import OneIdentity, scan_server
from recollect.stores.redis.shard import Guard
from recollect.stores.redis.slots import Node
from recollect.stores.redis.wire import Reply, ReplyError, pack

_QUESTION = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME")
"""For sentinels alone: servers do not know this command, and their users need no right to it."""
LOGIN_WANTED = frozenset({"NOAUTH", "WRONGPASS"})
"""Replies of a sentinel that does not answer this user."""
_GRACE_S = 0.25
"""How long to wait for slower sentinels once one has answered."""


class SentinelServers(RoutedServers):
    _joins = True

    def __init__(self, address: Address, options: Options) -> None:
        super().__init__(address, options)
        self._primary: Node | None = None
        self._identity = OneIdentity(address)
        self._error: CannotOpen | None = None
        self._question = pack(*_QUESTION, address.service)
        self._login = pack(*address.sentinel_login) if address.sentinel_login else b""

    @property
    def replaced(self) -> str | None:
        return self._identity.replaced

    async def open(self) -> str:
        end = time.monotonic() + self._options.timeout_s
        while True:
            await self.learn()
            try:
                primary = self._known()
                await self._shard(primary).open()
                break
            except EngineUnavailable:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(RETRY_MAX_S)
        self._watch()
        await self.check_rights()
        return await self._identity.establish(self._shard(primary), end)

    async def scan(self, kind: str, start: bytes) -> AsyncIterator[list[bytes]]:
        """After a failover from the beginning: the cursor of a scan means nothing to another server."""
        end = time.monotonic() + self._options.timeout_s
        node, hops = self._owner(0), 0
        while True:
            said: Exception = EngineUnavailable(f"{self._address.shown}: no primary is known ({self._error})")
            if node is not None:
                try:
                    async for names in scan_server(self._shard(node), kind, start, attempts=1):
                        end = time.monotonic() + self._options.timeout_s
                        yield names
                    return
                except EngineUnavailable as error:
                    said = error
            if self._closed or time.monotonic() >= end:
                raise said
            node, _ = await self._after(said, 0, node, hops, end - time.monotonic())
            hops += 1

    async def check_same(self, slot: int) -> None:
        await self._identity.check_same(self._shard(self._known()))

    async def check_all(self) -> None:
        await self.check_same(0)

    async def primary(self) -> Node:
        """Whom the sentinels name now."""
        await self.learn()
        return self._known()

    # ---- who serves

    def _known(self) -> Node:
        if self._primary is None:
            if self._error is not None and not isinstance(self._error, EngineUnavailable):
                raise self._error
            raise EngineUnavailable(f"{self._address.shown}: no primary is known ({self._error})")
        return self._primary

    def _owner(self, slot: int) -> Node | None:
        return self._primary

    def _moved(self, slot: int, node: Node) -> None:
        """Only nodes of a cluster say so."""

    def _serving(self) -> list[Node]:
        return [] if self._primary is None else [self._primary]

    def _guard(self, node: Node) -> Guard:
        return self._identity

    def _confirming(self, node: Node) -> Callable[[], Awaitable[None]]:
        """A primary that was replaced and is started again takes writes until a sentinel finds it, and looks like any
        other: so the sentinels are asked after every connection, too."""

        async def confirm() -> None:
            await self.learn()
            if self._primary != node:
                raise EngineUnavailable(f"{self._address.shown}: the sentinels name another primary now")

        return confirm

    async def _learn(self) -> None:
        votes: Counter[Node] = Counter()

        async def ask(sentinel: Node) -> None:
            address = self._address.sentinel(sentinel)
            try:
                reply = await self._asked(sentinel, address)
            except Exception as error:  # another one may know
                self._error = not_connected(error, address.shown)
                return
            named = _named(reply)
            if isinstance(reply, ReplyError) and reply.code in LOGIN_WANTED:
                told = f"{reply.text} Sentinels with another password than the servers: ?sentinel_password="
                self._error = CredentialsRefused(f"the sentinel {address.shown}", told)
            elif named is None:
                said = reply.text if isinstance(reply, ReplyError) else "it watches no such service"
                self._error = CannotOpen(
                    f"{address.shown}, asked for {self._address.service!r}: {said}; name the sentinels, and the "
                    "service as they call it"
                )
            else:
                votes[named] += 1

        tasks = [asyncio.create_task(ask(sentinel)) for sentinel in self._address.nodes]
        try:
            _, late = await asyncio.wait(tasks, timeout=_GRACE_S)
            while late and not votes:
                _, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if votes and self._primary not in [
            node for node, count in votes.items() if count == max(votes.values())
        ]:
            self._primary = votes.most_common(1)[0][0]

    async def _asked(self, sentinel: Node, address: Address) -> Reply:
        """Logs in only where a sentinel asks for it: one without a password would refuse."""
        reply = await self._scouts.ask(sentinel, address, self._question)
        if self._login and isinstance(reply, ReplyError) and reply.code == "NOAUTH":
            reply = await self._scouts.ask(sentinel, address, self._login)
            if not isinstance(reply, ReplyError):
                reply = await self._scouts.ask(sentinel, address, self._question)
        return reply

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for shard in self._shards.values():
                shard.stuck()
            await self.learn()


def _named(reply: Reply) -> Node | None:
    match reply:
        case [bytes(host), bytes(port)] if port.isdigit():
            return host.decode("utf-8", "replace"), int(port)
    return None
