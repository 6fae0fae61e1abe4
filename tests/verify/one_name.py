"""Stores with two bugs of the same name, and with either of them alone."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.driver_retries import retrying
from tests.planted.redis_list import RedisList


class ToolsTwice(RedisList):
    """What a tool said is kept twice: once as it came, once for the transcript."""

    def append_message(self, session: str, message: Any) -> None:
        said = json.dumps(message)
        self.client.rpush(self.key(session), *([said, said] if message["role"] == "tool" else [said]))


def tools_twice(endpoint: Endpoint) -> ToolsTwice:
    return ToolsTwice(endpoint)


def retried(endpoint: Endpoint) -> RedisList:
    """The driver sends it again when the answer is lost."""
    store = RedisList(endpoint)
    store.client = retrying(endpoint)
    return store


def both(endpoint: Endpoint) -> ToolsTwice:
    store = ToolsTwice(endpoint)
    store.client = retrying(endpoint)
    return store
