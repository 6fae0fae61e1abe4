"""Reads the list, appends, and writes it back: whoever wrote meanwhile is overwritten. It does not say what its
messages are, and takes only what `json.dumps` takes."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted(
    "redis",
    "aof-always",
    "concurrent-writers",
    "turns",
    ("lost-update",),
    more={"sessions": 1, "form": "mappings"},
)


class Untyped:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def append(self, session, messages):  # type: ignore[no-untyped-def]
        self.client.rpush(session, json.dumps(messages))

    def history(self, session: str) -> list[Any]:
        return [message for turn in self.client.lrange(session, 0, -1) for message in json.loads(turn)]


class Rewriting(Untyped):
    def append(self, session, messages):  # type: ignore[no-untyped-def]
        self.client.set(session, json.dumps(self.history(session) + messages))

    def history(self, session: str) -> list[Any]:
        return list(json.loads(self.client.get(session) or "[]"))


def factory(endpoint: Endpoint) -> Rewriting:
    return Rewriting(endpoint)


def twin(endpoint: Endpoint) -> Untyped:
    return Untyped(endpoint)
