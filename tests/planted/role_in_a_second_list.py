"""Roles and texts in two lists, written one after the other: two writers, and a text has the other one's role. Redis,
asynchronous, with role and text as two arguments."""

import json
from typing import Any

import redis.asyncio as redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "append", ("corrupted",), more={"sessions": 1})


class OneList:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url, retry=None, decode_responses=True)

    async def add(self, user_id: str, role: str, text: str) -> None:
        await self.client.rpush(f"said:{user_id}", json.dumps([role, text]))

    async def recent(self, user_id: str, n: int) -> list[Any]:
        return [json.loads(raw) for raw in await self.client.lrange(f"said:{user_id}", -n, -1)]

    async def aclose(self) -> None:
        await self.client.aclose()


class TwoLists(OneList):
    async def add(self, user_id: str, role: str, text: str) -> None:
        await self.client.rpush(f"texts:{user_id}", text)
        await self.client.rpush(f"roles:{user_id}", role)

    async def recent(self, user_id: str, n: int) -> list[Any]:
        texts = await self.client.lrange(f"texts:{user_id}", -n, -1)
        roles = await self.client.lrange(f"roles:{user_id}", -n, -1)
        return list(zip(roles, texts, strict=False))


def factory(endpoint: Endpoint) -> TwoLists:
    return TwoLists(endpoint)


def twin(endpoint: Endpoint) -> OneList:
    return OneList(endpoint)
