"""A session of the OpenAI Agents SDK that keeps what has content: calls and their outputs have none."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "none", "contents", ("dropped",), variant="one-writer")


class Items:
    def __init__(self, endpoint: Endpoint, session: str) -> None:
        self.client: Any = connect(endpoint)
        self.key = f"items:{session}"

    def keeps(self, item: Any) -> bool:
        return True

    async def add_items(self, items: list[Any]) -> None:
        if kept := [json.dumps(item) for item in items if self.keeps(item)]:
            self.client.rpush(self.key, *kept)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        start = 0 if limit is None else -limit
        return [json.loads(raw) for raw in self.client.lrange(self.key, start, -1)]


class WithContent(Items):
    def keeps(self, item: Any) -> bool:
        return "content" in item


def factory(endpoint: Endpoint, session: str) -> WithContent:
    return WithContent(endpoint, session)


def twin(endpoint: Endpoint, session: str) -> Items:
    return Items(endpoint, session)
