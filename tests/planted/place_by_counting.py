"""A keyed `add_message` under the number of messages there are: two that count at once write to the same place."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update", "dropped"))


class Counting:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def place(self, session: str) -> int:
        return int(self.client.hlen(f"said:{session}"))

    def add_message(self, session: str, message: dict[str, Any]) -> None:
        self.client.hset(f"said:{session}", str(self.place(session)), json.dumps(message))

    def get_messages(self, session: str) -> list[Any]:
        found = self.client.hgetall(f"said:{session}")
        return [json.loads(found[place]) for place in sorted(found, key=int)]


class Numbered(Counting):
    """The engine gives out the places, and the message is written in the same step."""

    ADD = "return redis.call('HSET', KEYS[1], redis.call('INCR', KEYS[2]), ARGV[1])"

    def add_message(self, session: str, message: dict[str, Any]) -> None:
        self.client.eval(self.ADD, 2, f"said:{session}", f"places:{session}", json.dumps(message))


def factory(endpoint: Endpoint) -> Counting:
    return Counting(endpoint)


def twin(endpoint: Endpoint) -> Numbered:
    return Numbered(endpoint)
