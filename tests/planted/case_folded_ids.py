"""Session ids are lower-cased and stripped "to be safe": User and user share a memory."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "mixed", ("cross-session-leak",))


class Folded(RedisList):
    def key(self, session: str) -> str:
        return f"session:{session.strip().lower()}:messages"


def factory(endpoint: Endpoint) -> Folded:
    return Folded(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
