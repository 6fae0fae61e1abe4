"""A key is joined from user and thread without escaping: user ``user:1`` is user ``user`` in thread ``1``."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "mixed", ("cross-session-leak",))


class Joined(RedisList):
    def key(self, session: str) -> str:
        """``user`` talks in its thread ``1`` by default, ``user:1`` in none."""
        return f"chat:{session}" if ":" in session else f"chat:{session}:1"


def factory(endpoint: Endpoint) -> Joined:
    return Joined(endpoint)


class Escaped(RedisList):
    def key(self, session: str) -> str:
        """Its length goes before the id, so that no id can pretend to be another one and its thread."""
        return f"chat:{len(session)}:{session}:1"


def twin(endpoint: Endpoint) -> Escaped:
    return Escaped(endpoint)
