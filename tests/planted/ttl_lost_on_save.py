"""The expiry is set when the session begins, and every later SET takes it off again: nothing is ever forgotten."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

# One writer: several would overwrite each other's document in the twin too.
PLANTED = Planted("redis", "aof-always", "clock-forward", "append", ("never-expired",), more={"writers": 1})
DAY_S = 86400


class Document(RedisList):
    retention_s = DAY_S

    def append_message(self, session: str, message: Any) -> None:
        known = self.client.get(self.key(session))
        messages = [*json.loads(known or "[]"), message]
        self.client.set(self.key(session), json.dumps(messages), ex=self.expiry(known is None))

    def expiry(self, new: bool) -> int | None:
        return DAY_S

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        messages: list[Any] = json.loads(self.client.get(self.key(session)) or "[]")
        return messages[-limit:]


class OnlyAtFirst(Document):
    def expiry(self, new: bool) -> int | None:
        return DAY_S if new else None


def factory(endpoint: Endpoint) -> OnlyAtFirst:
    return OnlyAtFirst(endpoint)


def twin(endpoint: Endpoint) -> Document:
    return Document(endpoint)
