"""Our Redis store with one mistake: it believes a WAITAOF that answers before the engine has fsynced."""

from __future__ import annotations

from dataclasses import replace

from recollect.stores.redis.store import RedisStore
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint


async def believes_waitaof(endpoint: Endpoint) -> RedisStore:
    store = await builtin.redis_fsynced(endpoint)
    assert isinstance(store, RedisStore)
    commit = store._servers.shard.commit  # type: ignore[attr-defined]
    commit.plan = replace(commit.plan, watches=False)
    return store
