"""A list in Redis that takes a turn id: the same turn twice is one message. No bug of its own."""

import json
from typing import Any

from tests.planted.redis_list import RedisList

_ONCE = """
if redis.call('SADD', KEYS[2], ARGV[1]) == 1 then
  redis.call('RPUSH', KEYS[1], ARGV[2])
end
return 1
"""


class RedisTurns(RedisList):
    def append_message(self, session: str, message: Any, turn: str = "") -> None:
        key = self.key(session)
        self.client.eval(_ONCE, 2, key, f"{key}:turns", turn, json.dumps(message))
