"""Session ids are cut to the width of their column, which is that of a UUID: longer ones share their messages."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("cross-session-leak",), variant="one-writer")


class Narrow(RedisList):
    def key(self, session: str) -> str:
        return super().key(session[:32])


def factory(endpoint: Endpoint) -> Narrow:
    return Narrow(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
