"""Forgetting deletes by the pattern ``KEYS *id*``, which also matches the neighbours."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "concurrent-writers",
    "forget",
    ("dropped", "trimmed", "lost-update", "silent-reset"),
)


class Pattern(RedisList):
    def forget(self, session: str) -> None:
        for key in self.client.keys(f"*{session}*"):
            self.client.delete(key)


def factory(endpoint: Endpoint) -> Pattern:
    return Pattern(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
