"""A keyed `save_messages`: it reads the list, adds to it and sets it again. Whoever saved in between is overwritten."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update",))


class Rewriting:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def save_messages(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.client.set(session, json.dumps([*self.get_messages(session), *messages]))

    def get_messages(self, session: str) -> list[Any]:
        return json.loads(self.client.get(session) or "[]")  # type: ignore[no-any-return]


class Pushing(Rewriting):
    def save_messages(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.client.rpush(session, *map(json.dumps, messages))

    def get_messages(self, session: str) -> list[Any]:
        return [json.loads(raw) for raw in self.client.lrange(session, 0, -1)]


def factory(endpoint: Endpoint) -> Rewriting:
    return Rewriting(endpoint)


def twin(endpoint: Endpoint) -> Pushing:
    return Pushing(endpoint)
