"""A cache in the process survives `forget`: the next append saves the forgotten messages again."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "forget", ("resurrected",))


class Cached(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.cache: dict[str, list[Any]] = {}

    def append_message(self, session: str, message: Any) -> None:
        messages = self.cache.setdefault(session, [])
        messages.append(dict(message))
        self.client.set(self.key(session), json.dumps(messages))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        raw = self.client.get(self.key(session))
        return json.loads(raw)[-limit:] if raw else []


class Cleared(Cached):
    def forget(self, session: str) -> None:
        self.cache.pop(session, None)
        super().forget(session)


def factory(endpoint: Endpoint) -> Cached:
    return Cached(endpoint)


def twin(endpoint: Endpoint) -> Cleared:
    return Cleared(endpoint)
