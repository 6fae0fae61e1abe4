"""Metadata is kept once a session: every append puts its own over that of all messages before it."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("corrupted",), variant="one-writer")


class Shared(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        if "metadata" in message:
            self.client.set(f"metadata:{session}", json.dumps(message["metadata"]))
        super().append_message(session, message)

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        latest = json.loads(self.client.get(f"metadata:{session}") or "null")
        said = super().get_history(session, limit)
        return [{**message, "metadata": latest} if "metadata" in message else message for message in said]


def factory(endpoint: Endpoint) -> Shared:
    return Shared(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
