"""Every fifth append also compacts: it reads the list, and writes it back with a summary in front, without a check."""

import contextlib
import json
import time
from typing import Any

import redis

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update",))
SUMMARY_S = 0.5


class Summarising(RedisList):
    appended = 0

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        self.appended += 1
        if self.appended % 5 == 0:
            self.compact(session)

    def compact(self, session: str) -> None:
        with self.client.pipeline() as pipe:
            self.begin(pipe, session)
            messages = self.client.lrange(self.key(session), 0, -1)
            self.summarise(session, len(messages))
            pipe.multi()
            pipe.delete(self.key(session))
            pipe.rpush(self.key(session), *messages)
            pipe.set(f"summary:{session}", json.dumps({"of": len(messages)}))
            pipe.execute()

    def summarise(self, session: str, length: int) -> None:
        """Takes the model as long as somebody needs to say one more thing, however busy the machine is."""
        end = time.monotonic() + SUMMARY_S
        while self.client.llen(self.key(session)) == length and time.monotonic() < end:
            time.sleep(0.01)

    def begin(self, pipe: Any, session: str) -> None:
        """Nothing is checked."""


class Watching(Summarising):
    """Whoever wrote meanwhile goes first: the next fifth append compacts."""

    def begin(self, pipe: Any, session: str) -> None:
        pipe.watch(self.key(session))

    def compact(self, session: str) -> None:
        with contextlib.suppress(redis.WatchError):
            super().compact(session)


def factory(endpoint: Endpoint) -> Summarising:
    return Summarising(endpoint)


def twin(endpoint: Endpoint) -> Watching:
    return Watching(endpoint)
