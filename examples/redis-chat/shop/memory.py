"""What the shop's assistant remembers: one Redis list for each session, one JSON document for each message."""

import json
from typing import Any

import redis

KEEP_S = 300


class ChatMemory:
    def __init__(self, url: str) -> None:
        # No retries: an append whose reply was lost would be stored twice.
        self._redis: Any = redis.Redis.from_url(url, retry=None)

    def append_message(self, session: str, message: dict[str, str]) -> None:
        with self._redis.pipeline() as together:
            together.rpush(_key(session), json.dumps(message))
            together.expire(_key(session), KEEP_S)
            together.execute()

    def get_history(self, session: str, limit: int = 100) -> list[dict[str, str]]:
        return [json.loads(raw) for raw in self._redis.lrange(_key(session), -limit, -1)]

    def close(self) -> None:
        self._redis.close()


def _key(session: str) -> str:
    return f"session:{session}:messages"
