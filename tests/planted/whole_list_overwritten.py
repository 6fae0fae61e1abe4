"""Two workers load, add and save the whole list: the later one overwrites the earlier one's message."""

import json
from typing import Any

import redis

from recollect.errors import NotWritten
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "rewrite", ("lost-update",))


class WholeList:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)
        self.loaded: dict[str, bytes | None] = {}

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.client.set(f"session:{session}", json.dumps(messages))

    def load(self, session: str) -> list[dict[str, Any]]:
        raw = self.client.get(f"session:{session}")
        self.loaded[session] = raw
        return json.loads(raw) if raw else []


class Compared(WholeList):
    """Saves only over what it has loaded; if somebody else was faster, the caller is told."""

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        key = f"session:{session}"
        try:
            with self.client.pipeline() as pipe:
                pipe.watch(key)
                if pipe.get(key) != self.loaded.get(session):
                    raise NotWritten(f"session {session} has changed since it was loaded; load it again")
                pipe.multi()
                pipe.set(key, json.dumps(messages))
                pipe.execute()
        except redis.WatchError as error:
            raise NotWritten(f"session {session} changed while it was saved; load it again") from error


def factory(endpoint: Endpoint) -> WholeList:
    return WholeList(endpoint)


def twin(endpoint: Endpoint) -> Compared:
    return Compared(endpoint)
