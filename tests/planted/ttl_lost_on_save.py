"""The expiry is set when the session begins, and every later SET takes it off again: nothing is ever forgotten."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "clock-forward", "append", ("never-expired",))
DAY_S = 86400

_ADD = """
local known = redis.call('GET', KEYS[1])
if known and ARGV[3] == 'only at first' then
  redis.call('SET', KEYS[1], known .. ARGV[1])
else
  redis.call('SET', KEYS[1], (known or '') .. ARGV[1], 'EX', ARGV[2])
end
"""


class Document(RedisList):
    """One line of JSON for each message."""

    retention_s = DAY_S
    expiry = "every time"

    def append_message(self, session: str, message: Any) -> None:
        line = json.dumps(message) + "\n"
        self.client.eval(_ADD, 1, self.key(session), line, DAY_S, self.expiry)

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        lines = (self.client.get(self.key(session)) or b"").splitlines()
        return [json.loads(line) for line in lines[-limit:]]


class OnlyAtFirst(Document):
    expiry = "only at first"


def factory(endpoint: Endpoint) -> OnlyAtFirst:
    return OnlyAtFirst(endpoint)


def twin(endpoint: Endpoint) -> Document:
    return Document(endpoint)
