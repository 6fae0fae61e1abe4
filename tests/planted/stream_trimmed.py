"""A stream with a MAXLEN, as every tutorial for queues has it: a queue forgets what was consumed, a memory must not."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_stream import RedisStream

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "trimmed", ("trimmed",))


class StreamTrimmed(RedisStream):
    def append_message(self, session: str, message: Any) -> None:
        fields = {"message": json.dumps(message)}
        self.client.xadd(self.key(session), fields, maxlen=10, approximate=False)


def factory(endpoint: Endpoint) -> StreamTrimmed:
    return StreamTrimmed(endpoint)


def twin(endpoint: Endpoint) -> RedisStream:
    return RedisStream(endpoint)
