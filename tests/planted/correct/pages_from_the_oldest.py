"""Its reads are pages, from the oldest on: a limit is no claim about the newest."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (Cell("redis", "aof-always", "none", "turns", {"variant": "one-writer"}),)


class Pages(RedisList):
    def get_history(self, session: str, limit: int = 50, start: int = 0) -> list[Any]:
        return [json.loads(raw) for raw in self.client.lrange(self.key(session), start, start + limit - 1)]


def factory(endpoint: Endpoint) -> Pages:
    return Pages(endpoint)
