"""Every tenth append also compacts: it reads the list, and writes it back with a summary in front, without a check."""

import json
import time
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update",))


class Summarising(RedisList):
    appended = 0

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        self.appended += 1
        if self.appended % 10 == 0:
            messages = self.client.lrange(self.key(session), 0, -1)
            time.sleep(0.01)  # the model writes the summary
            with self.client.pipeline() as pipe:
                pipe.delete(self.key(session))
                pipe.rpush(self.key(session), *messages)
                pipe.set(f"summary:{session}", json.dumps({"of": len(messages)}))
                pipe.execute()


def factory(endpoint: Endpoint) -> Summarising:
    return Summarising(endpoint)
