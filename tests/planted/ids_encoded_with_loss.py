"""What of a session id cannot be encoded becomes a question mark: all such ids are one."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("cross-session-leak",), variant="one-writer")


class Replacing(RedisList):
    def key(self, session: str) -> str:
        return super().key(session.encode("utf-8", "replace").decode())


def factory(endpoint: Endpoint) -> Replacing:
    return Replacing(endpoint)


class Escaping(RedisList):
    def key(self, session: str) -> str:
        escaped = session.replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()
        return super().key(escaped)


def twin(endpoint: Endpoint) -> Escaping:
    return Escaping(endpoint)
