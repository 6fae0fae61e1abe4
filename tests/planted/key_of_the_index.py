"""Beside each session is a list for its index, under the session's key with a word behind it. That is a session too."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("cross-session-leak",), variant="one-writer")


class Indexed(RedisList):
    def key(self, session: str) -> str:
        return f"chat:{session}"

    def index_key(self, session: str) -> str:
        return f"chat:{session}:index"

    def append_message(self, session: str, message: Any) -> None:
        with self.client.pipeline(transaction=True) as both:
            both.rpush(self.key(session), json.dumps(message))
            both.rpush(self.index_key(session), json.dumps(message))
            both.execute()


class Separated(Indexed):
    def index_key(self, session: str) -> str:
        return f"index:{session}"


def factory(endpoint: Endpoint) -> Indexed:
    return Indexed(endpoint)


def twin(endpoint: Endpoint) -> Separated:
    return Separated(endpoint)
