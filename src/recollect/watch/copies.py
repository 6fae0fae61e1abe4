"""The replicas of a cluster, or of a primary behind sentinels, each read over a connection of its own."""

from __future__ import annotations

from recollect.audit.redis import RedisAudit
from recollect.doctor.redis_group import replicas_of
from recollect.errors import RecollectError
from recollect.stores.redis.address import parse_address
from recollect.stores.redis.slots import Node
from recollect.stores.redis.wire import pack


class GroupCopies:
    def __init__(self, url: str, timeout_s: float) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._address = parse_address(url)
        self._primary_of: dict[Node, Node] = {}
        self._sources: dict[Node, RedisAudit] = {}

    async def learn(self) -> None:
        """Asks who follows whom now."""
        self._primary_of = await replicas_of(self._url, self._timeout_s)
        for node in self._sources.keys() - self._primary_of.keys():
            await self.drop(node)

    def of(self, primary: Node | None) -> list[Node]:
        """The replicas of this one; of all, if there is only one primary."""
        return [copy for copy, above in self._primary_of.items() if primary in (None, above)]

    async def source(self, copy: Node) -> RedisAudit | None:
        """None while it does not answer: whether it is late cannot be told."""
        if copy not in self._sources:
            try:
                self._sources[copy] = await RedisAudit.connected(self._address.at(copy), self._timeout_s)
                if self._address.kind == "cluster":
                    await self._sources[copy].ask(pack("READONLY"))
            except RecollectError:
                await self.drop(copy)
                return None
        return self._sources[copy]

    async def drop(self, copy: Node) -> None:
        source = self._sources.pop(copy, None)
        if source is not None:
            await source.close()

    async def close(self) -> None:
        for copy in list(self._sources):
            await self.drop(copy)
