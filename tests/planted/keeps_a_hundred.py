"""Adds one message at a time and keeps a window of the last hundred, as many do, and does not say so."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "none", "trimmed", ("trimmed",), variant="one-writer")


class Notes:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def add(self, user_id: str, role: str, text: str) -> None:
        self.client.rpush(user_id, json.dumps({"role": role, "text": text}))

    def recent(self, user_id: str, n: int = 20) -> list[Any]:
        return [json.loads(raw) for raw in self.client.lrange(user_id, -n, -1)]


class Trimmed(Notes):
    def add(self, user_id: str, role: str, text: str) -> None:
        super().add(user_id, role, text)
        self.client.ltrim(user_id, -100, -1)


def factory(endpoint: Endpoint) -> Trimmed:
    return Trimmed(endpoint)


def twin(endpoint: Endpoint) -> Notes:
    return Notes(endpoint)
