"""Blanks at the end of a session id do not count, as in a column of fixed width."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("cross-session-leak",), variant="one-writer")


class FixedWidth(RedisList):
    def key(self, session: str) -> str:
        return super().key(session.rstrip(" "))


def factory(endpoint: Endpoint) -> FixedWidth:
    return FixedWidth(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
