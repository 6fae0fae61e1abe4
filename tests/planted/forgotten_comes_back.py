"""Every message is kept in a second list too, for the day when the first is lost; `forget` forgets the first alone."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "forget", ("resurrected",))


class WithACopy(RedisList):
    def copy(self, session: str) -> str:
        return f"copy:{self.key(session)}"

    def append_message(self, session: str, message: Any) -> None:
        raw = json.dumps(message)
        with self.client.pipeline(transaction=True) as both:
            both.rpush(self.key(session), raw).rpush(self.copy(session), raw).execute()

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        found = self.client.lrange(self.key(session), -limit, -1)
        return [json.loads(raw) for raw in found or self.client.lrange(self.copy(session), -limit, -1)]


class ForgetsBoth(WithACopy):
    def forget(self, session: str) -> None:
        self.client.delete(self.key(session), self.copy(session))


def factory(endpoint: Endpoint) -> WithACopy:
    return WithACopy(endpoint)


def twin(endpoint: Endpoint) -> ForgetsBoth:
    return ForgetsBoth(endpoint)
