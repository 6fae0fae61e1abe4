"""The primary that sentinels name, audited as any server; if they name another one at the end, that is said.

A scan cannot continue on another server, and a primary that was replaced may have taken writes that are lost: after a
failover the memory was not read to the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from recollect.audit.finding import AuditFinding
from recollect.audit.redis import RedisAudit
from recollect.errors import EngineUnavailable
from recollect.store import Options
from recollect.stores.redis.address import parse_address
from recollect.stores.redis.sentinel import SentinelServers
from recollect.stores.redis.slots import Node


class SentinelAudit(RedisAudit):
    engine = "redis-sentinel"
    _sentinels: SentinelServers
    """Only asked who serves: it is never opened as a store."""
    _primary: Node

    @classmethod
    async def open(cls, url: str, timeout_s: float) -> SentinelAudit:
        address = parse_address(url)
        sentinels = SentinelServers(address, Options(timeout_s=timeout_s))
        try:
            primary = await sentinels.primary()
            audit = await cls.connected(address.at(primary), timeout_s)
        except BaseException:
            await sentinels.close()
            raise
        audit._sentinels, audit._primary = sentinels, primary
        audit.shard = f"{primary[0]}:{primary[1]}"
        await audit.look()
        return audit

    async def close(self) -> None:
        await super().close()
        await self._sentinels.close()

    async def moved(self) -> bool:
        """Whether the sentinels name another server by now."""
        return await self._sentinels.primary() != self._primary

    async def beside(self) -> AsyncIterator[tuple[int, list[AuditFinding]]]:
        now = await self._sentinels.primary()
        facts = await self.facts()
        if now != self._primary or facts.role != "master":
            raise EngineUnavailable(
                f"{self.shard} was the primary when the audit began, and is not any more: a failover to "
                f"{now[0]}:{now[1]}; run the audit again"
            )
        yield 0, []
