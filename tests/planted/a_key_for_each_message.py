"""Each message is a key of its own: Redis evicts some of them, and a session that lacks one cannot be read at all."""

import json
from typing import Any
from uuid import uuid4

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "evict",
    "append",
    ("unreadable",),
    twin_status="documented-loss",
    more={"sessions": 12},
)
EMBEDDING = bytes(16384)


class Sessions(RedisList):
    """Messages with their embeddings. A session is one key: evicted whole, as the manual says, or not at all."""

    def append_message(self, session: str, message: Any) -> None:
        with self.client.pipeline() as pipe:
            pipe.rpush(f"{self.key(session)}:embeddings", EMBEDDING)
            pipe.rpush(self.key(session), json.dumps(message))
            pipe.execute()


class Keys(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        key = f"message:{uuid4().hex}"
        with self.client.pipeline() as pipe:
            pipe.hset(key, mapping={"message": json.dumps(message), "embedding": EMBEDDING})
            pipe.rpush(self.key(session), key)
            pipe.execute()

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        with self.client.pipeline() as pipe:
            for key in self.client.lrange(self.key(session), -limit, -1):
                pipe.hget(key, "message")
            return [json.loads(raw) for raw in pipe.execute()]


def factory(endpoint: Endpoint) -> Keys:
    return Keys(endpoint)


def twin(endpoint: Endpoint) -> Sessions:
    return Sessions(endpoint)
