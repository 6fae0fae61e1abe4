"""A stream in Redis for each session: what the planted stores with streams are made from. No bug of its own."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.redis_list import connect


class RedisStream:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def key(self, session: str) -> str:
        return f"session:{session}:stream"

    def append_message(self, session: str, message: Any) -> None:
        self.client.xadd(self.key(session), {"message": json.dumps(message)})

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        newest_first = self.client.xrevrange(self.key(session), count=limit)
        return [json.loads(fields[b"message"]) for _, fields in reversed(newest_first)]

    def forget(self, session: str) -> None:
        self.client.delete(self.key(session))
