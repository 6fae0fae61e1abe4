"""A conversation takes sixty messages. The next one is refused, which the store declares."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (Cell("redis", "aof-always", "restart", "append", {"sessions": 1}),)
APPEND = "if redis.call('LLEN', KEYS[1]) >= 60 then return 0 end return redis.call('RPUSH', KEYS[1], ARGV[1])"


class ConversationFull(Exception):
    pass


class Sixty(RedisList):
    expected_errors = ("ConversationFull",)

    def append_message(self, session: str, message: Any) -> None:
        if not self.client.eval(APPEND, 1, self.key(session), json.dumps(message)):
            raise ConversationFull("start a new one")


def factory(endpoint: Endpoint) -> Sixty:
    return Sixty(endpoint)
