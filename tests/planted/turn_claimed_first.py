"""The id of a turn is claimed first, and its messages are written then: who tries again after an error between the two
is told that they are there."""

import json
from collections.abc import Sequence
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.false_if_it_was_there import FalseIfItWasThere
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "lost-ack", "turns", ("lost-tail", "hole", "dropped"))


class ClaimedFirst(FalseIfItWasThere):
    def append(self, session: str, messages: Sequence[dict[str, Any]], turn: str = "") -> bool:
        if self.client.set(f"session:{session}:turns:{turn}", 1, nx=True):
            self.client.rpush(f"session:{session}:messages", *map(json.dumps, messages))
        return True


def factory(endpoint: Endpoint) -> ClaimedFirst:
    return ClaimedFirst(endpoint)


def twin(endpoint: Endpoint) -> FalseIfItWasThere:
    return FalseIfItWasThere(endpoint)
