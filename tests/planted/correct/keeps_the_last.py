"""A list that is trimmed on every write, by a store that says so: a documented window is no loss."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "trimmed"),
    Cell("redis", "aof-always", "restart", "turns"),
    Cell("redis", "aof-always", "none", "contents"),
    Cell("redis", "aof-everysec", "lost-ack", "turns"),
)


class Window(RedisList):
    traits = ("keeps_last=10",)

    def append_message(self, session: str, message: Any) -> None:
        with self.client.pipeline() as pipe:
            pipe.rpush(self.key(session), json.dumps(message))
            pipe.ltrim(self.key(session), -10, -1)
            pipe.execute()


def factory(endpoint: Endpoint) -> Window:
    return Window(endpoint)
