"""After a failover it answers reads from its own copy: two primaries are over, and it still shows the old one."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.sentinels_not_heard import SentinelList

PLANTED = Planted(
    "redis-sentinel",
    "aof-always",
    "isolate-sentinels",
    "append",
    ("stale-read",),
    twin_status="documented-loss",  # what the replaced primary acknowledged, and what it showed until it was told
    more={"sessions": 1},
)


class OwnCopy(SentinelList):
    """It means to spare a primary that has just been elected."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.copies: dict[str, list[Any]] = {}
        self.elected = self.client.connection_pool.get_master_address()

    @property
    def is_another(self) -> bool:
        return bool(self.client.connection_pool.master_address != self.elected)

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        if self.is_another:
            self.copies.setdefault(session, []).append(message)

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        if session not in self.copies or not self.is_another:
            self.copies[session] = super().get_history(session, limit)
        return self.copies[session][-limit:]


def factory(endpoint: Endpoint) -> OwnCopy:
    return OwnCopy(endpoint)


def twin(endpoint: Endpoint) -> SentinelList:
    """It is behind as well, but only while two primaries answer."""
    return SentinelList(endpoint)
