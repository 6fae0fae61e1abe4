"""The layout depends on the server's version: after the upgrade the store looks where nothing has ever been written."""

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "upgrade", "turns", ("silent-reset",))


class ByVersion(RedisList):
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.major = str(self.client.info("server")["redis_version"]).partition(".")[0]

    def key(self, session: str) -> str:
        """From 7 on, the sessions of one user are kept together on one shard."""
        return super().key(session) if int(self.major) < 7 else f"session:{{{session}}}:messages"


def factory(endpoint: Endpoint) -> ByVersion:
    return ByVersion(endpoint)


def twin(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)
