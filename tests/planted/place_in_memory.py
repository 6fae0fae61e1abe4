"""The place of the next message is kept in memory, and read before it is taken: two threads put theirs at the same."""

import json
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted(
    "redis",
    "none",
    "none",
    "append",
    ("lost-update", "dropped"),
    variant="several-callers",
    more={"sessions": 1},
)


class PlaceInMemory:
    def __init__(self, endpoint: Endpoint, lock: AbstractContextManager[Any]) -> None:
        self.client: Any = connect(endpoint)
        self.lock = lock
        self.places: dict[str, int] = {}

    def append_message(self, session: str, message: Any) -> None:
        with self.lock:
            place = self.places.get(session, 0)
            self.client.hset(f"session:{session}", place, json.dumps(message))
            self.places[session] = place + 1

    def get_messages(self, session: str) -> list[Any]:
        found = self.client.hgetall(f"session:{session}")
        return [json.loads(found[place]) for place in sorted(found, key=int)]


def factory(endpoint: Endpoint) -> PlaceInMemory:
    return PlaceInMemory(endpoint, nullcontext())


def twin(endpoint: Endpoint) -> PlaceInMemory:
    return PlaceInMemory(endpoint, threading.Lock())
