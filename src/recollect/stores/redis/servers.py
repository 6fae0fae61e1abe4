"""Where a store's requests go: one server here; a cluster (`cluster`) or whoever sentinels name (`sentinel`) elsewhere.

A request names the slot of its session. On one server that means nothing; in a cluster it says which primary to ask.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from recollect.errors import CredentialsRefused, StoreReplaced, Unreadable
from recollect.store import Options
from recollect.stores.redis.address import Address
from recollect.stores.redis.commit import QueuedWrite
from recollect.stores.redis.errors import code_of, read_refused
from recollect.stores.redis.settings import DurabilityPlan
from recollect.stores.redis.shard import Shard
from recollect.stores.redis.wire import Reply, ReplyError, pack

SCAN_COUNT = 1000
PROBE_LIFE_MS = 10_000
AGAIN_S = 0.1

_logger = logging.getLogger("recollect")


class Servers(Protocol):
    @property
    def plan(self) -> DurabilityPlan:
        """What every write gets at least."""

    @property
    def spans_slots(self) -> bool:
        """Whether one write may change sessions in several slots."""

    @property
    def replaced(self) -> str | None:
        """Why this is no longer the store, if it is not."""

    async def open(self) -> str:
        """Connects, checks the user's rights, and returns the store's identity, created if the store is new."""

    def submit(self, write: QueuedWrite, slot: int) -> Awaitable[Reply]: ...

    async def ask(self, slot: int, request: bytes, count: int, deadline: float | None = None) -> list[Reply]:
        """Replies to a request that is safe to repeat."""

    async def ask_each(self, requests: Sequence[tuple[int, bytes]]) -> list[Reply]:
        """One reply to each of these requests, each with its slot; safe to repeat."""

    def scan(self, kind: str, start: bytes) -> AsyncIterator[list[bytes]]:
        """The names of one key of each session whose id begins with `start`; a name may come twice."""

    async def check_same(self, slot: int) -> None:
        """Raises `StoreReplaced` if the server of this slot is not the one it was."""

    async def check_all(self) -> None:
        """The same for every server."""

    async def check_rights(self) -> None: ...

    async def close(self) -> None: ...


def say_notice(address: Address, plan: DurabilityPlan) -> None:
    if plan.notice is not None:
        _logger.warning("%s: %s", address.shown, plan.notice)


def check_answered(reply: Reply, address: Address, *, told_later: tuple[str, ...]) -> None:
    """Raises what an error reply to a read on a new connection means, unless a later check reports it better."""
    if isinstance(reply, ReplyError) and reply.code == "NOAUTH":
        raise CredentialsRefused(address.shown, reply.text)
    if isinstance(reply, ReplyError) and reply.code not in told_later:
        raise read_refused(reply)  # still loading, or no longer allowed


async def once_replicas_are_there(ask: Callable[[], Awaitable[list[Reply]]], end: float) -> list[Reply]:
    """The replies to what gives a new store its identity, which it cannot do without. After a restart replicas need a
    moment to come back."""
    while True:
        replies = await ask()
        refused = next((reply for reply in replies if isinstance(reply, ReplyError)), None)
        if refused is None:
            return replies
        if code_of(refused) != "NOREPLICAS" or time.monotonic() > end:
            raise read_refused(refused)
        await asyncio.sleep(AGAIN_S)


class OneIdentity:
    """Whether a server is still the store's: by one key that holds the store's identity."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._identity: str | None = None
        self._probe = pack("SET", f"{address.prefix}:probe", "1", "PX", PROBE_LIFE_MS)
        self.replaced: str | None = None

    async def establish(self, shard: Shard, end: float) -> str:
        """The identity, created if the store is new."""
        name = self._address.identity_key
        request = pack("SET", name, str(uuid.uuid4()), "NX") + pack("GET", name) + shard.plan.request

        async def ask() -> list[Reply]:
            made, identity, *_ = await shard.ask(request, 2 + shard.plan.count)
            return [identity if isinstance(identity, bytes) else made, identity]

        _, identity = await once_replicas_are_there(ask, end)
        self._identity = _read_identity(identity, name)
        return self._identity

    async def check_same(self, shard: Shard) -> None:
        [identity] = await shard.ask(*self.question())
        if isinstance(identity, ReplyError):
            raise read_refused(identity)
        self.check_replaced([identity])

    def question(self) -> tuple[bytes, int]:
        return pack("GET", self._address.identity_key), 1

    def check_readable(self, replies: list[Reply]) -> None:
        told_later = ("MOVED", "CLUSTERDOWN", "NOPERM") if self._identity is None else ()
        check_answered(replies[0], self._address, told_later=told_later)

    def check_replaced(self, replies: list[Reply]) -> None:
        [identity] = replies
        if self._identity is None or identity == self._identity.encode():
            return
        found = identity.decode("utf-8", "replace") if isinstance(identity, bytes) else "none"
        self.replaced = (
            f"{self._address.shown} is not the store it was: its identity was {self._identity}, now it is {found}. "
            "It was wiped, or replaced by another one. Open it again if that is intended"
        )
        raise StoreReplaced(self.replaced)

    def probe(self) -> bytes:
        return self._probe


def _read_identity(reply: Reply, name: str) -> str:
    if not isinstance(reply, bytes):
        raise read_refused(reply) if isinstance(reply, ReplyError) else Unreadable(f"{name} is gone")
    try:
        return reply.decode()
    except UnicodeDecodeError:
        raise Unreadable(f"{name} holds {str(reply)[:100]}, which is no identity of a store") from None


async def scan_server(
    shard: Shard, kind: str, start: bytes, *, attempts: int = 2
) -> AsyncIterator[list[bytes]]:
    """`Servers.scan` for one server."""
    cursor, pattern = b"0", shard.address.pattern(kind, start)
    while True:
        request = pack("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
        [reply] = await shard.ask(request, 1, attempts=attempts)
        match reply:
            case [bytes(cursor), list(names)]:
                yield [name for name in names if isinstance(name, bytes)]
            case ReplyError():
                raise read_refused(reply)
            case _:
                raise Unreadable(f"SCAN: {reply!r}")
        if cursor == b"0":
            return


class OneServer:
    """One address, one primary."""

    def __init__(self, address: Address, options: Options) -> None:
        self._identity = OneIdentity(address)
        self._timeout_s = options.timeout_s
        self.shard = Shard(
            address,
            options,
            lambda: self._identity,
            planned=lambda shard: say_notice(shard.address, shard.plan),
        )

    @property
    def plan(self) -> DurabilityPlan:
        return self.shard.plan

    @property
    def spans_slots(self) -> bool:
        return self.shard.commit.joins

    @property
    def replaced(self) -> str | None:
        return self._identity.replaced

    async def open(self) -> str:
        end = time.monotonic() + self._timeout_s
        await self.shard.open()
        await self.check_rights()
        return await self._identity.establish(self.shard, end)

    def submit(self, write: QueuedWrite, slot: int) -> Awaitable[Reply]:
        return self.shard.commit.submit(write)

    async def ask(self, slot: int, request: bytes, count: int, deadline: float | None = None) -> list[Reply]:
        return await self.shard.ask(request, count, deadline)

    async def ask_each(self, requests: Sequence[tuple[int, bytes]]) -> list[Reply]:
        if not requests:
            return []
        return await self.shard.ask(b"".join(request for _, request in requests), len(requests))

    def scan(self, kind: str, start: bytes) -> AsyncIterator[list[bytes]]:
        return scan_server(self.shard, kind, start)

    async def check_same(self, slot: int) -> None:
        await self._identity.check_same(self.shard)

    async def check_all(self) -> None:
        await self._identity.check_same(self.shard)

    async def check_rights(self) -> None:
        await self.shard.check_rights()

    async def close(self) -> None:
        await self.shard.close()
