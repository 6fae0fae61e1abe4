"""Gives as many of the latest messages as fit into a prompt; how much fits, the caller says."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (Cell("redis", "aof-always", "none", "trimmed", {"variant": "one-writer"}),)


class SpendsTokens(RedisList):
    def get_messages(self, session: str, max_tokens: int = 500) -> list[Any]:
        fit: list[Any] = []
        for message in reversed(self.get_history(session, 0)):
            max_tokens -= len(message["content"]) // 4
            if max_tokens < 0:
                break
            fit.insert(0, message)
        return fit


class OnlyMessages:
    """Reads by tokens alone."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._store = SpendsTokens(endpoint)
        self.append_message, self.get_messages = self._store.append_message, self._store.get_messages


def factory(endpoint: Endpoint) -> OnlyMessages:
    return OnlyMessages(endpoint)
