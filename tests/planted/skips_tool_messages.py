"""Only what a user or an assistant said is handed to the model: tool calls come back without their results."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("hidden",), variant="one-writer")


class Dialogue(RedisList):
    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        said = super().get_history(session, limit)
        return [message for message in said if message["role"] != "tool"]


def factory(endpoint: Endpoint) -> Dialogue:
    return Dialogue(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
