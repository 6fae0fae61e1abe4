"""A window that is cut where the user speaks, as models want it: it may have fewer messages than were asked for."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import RedisList

CELLS = (
    Cell("redis", "aof-always", "none", "turns", {"variant": "one-writer"}),
    Cell("redis", "aof-everysec", "power-loss", "turns"),
)


class BeginsWithTheUser(RedisList):
    def get_history(self, session: str, limit: int | None = None) -> list[Any]:
        if limit is None:
            return super().get_history(session, 0)
        window = super().get_history(session, limit)
        turns = [place for place, message in enumerate(window) if message["role"] == "user"]
        return window[turns[0] :] if turns and len(window) == limit else window


def factory(endpoint: Endpoint) -> BeginsWithTheUser:
    return BeginsWithTheUser(endpoint)
