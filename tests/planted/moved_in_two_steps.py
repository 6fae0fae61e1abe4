"""A message is taken out of the inbox and put into the history in two steps: for a moment it is nowhere."""

import json
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis", "aof-always", "concurrent-writers", "append", ("non-monotonic-read",), more={"sessions": 1}
)


class Inbox(RedisList):
    """Read are both, in one step; moved is in one step too."""

    def inbox(self, session: str) -> str:
        return f"inbox:{session}"

    def append_message(self, session: str, message: Any) -> None:
        self.client.rpush(self.inbox(session), json.dumps(message))
        time.sleep(0.01)  # it is looked at whether it may be kept
        self.move(session)

    def move(self, session: str) -> None:
        self.client.lmove(self.inbox(session), self.key(session))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        with self.client.pipeline() as pipe:
            pipe.lrange(self.key(session), 0, -1)
            pipe.lrange(self.inbox(session), 0, -1)
            kept, waiting = pipe.execute()
        return [json.loads(raw) for raw in (kept + waiting)[-limit:]]


class TwoSteps(Inbox):
    def move(self, session: str) -> None:
        raw = self.client.lpop(self.inbox(session))
        time.sleep(0.01)  # its embedding is computed
        self.client.rpush(self.key(session), raw)


def factory(endpoint: Endpoint) -> TwoSteps:
    return TwoSteps(endpoint)


def twin(endpoint: Endpoint) -> Inbox:
    return Inbox(endpoint)
