"""Two workers load, add and save the whole list: the later one overwrites the earlier one's message."""

import json
import threading
from typing import Any

from recollect.errors import NotWritten
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "rewrite", ("lost-update",))


class WholeList:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        self.client.set(f"session:{session}", json.dumps(messages))

    def load(self, session: str) -> list[dict[str, Any]]:
        return self.parsed(self.client.get(f"session:{session}"))

    def parsed(self, raw: bytes | None) -> list[dict[str, Any]]:
        return json.loads(raw) if raw else []


SWAP = """
if redis.call("GET", KEYS[1]) ~= (ARGV[1] ~= "" and ARGV[1]) then return 0 end
redis.call("SET", KEYS[1], ARGV[2])
return 1
"""


class Compared(WholeList):
    """Saves only over what it has loaded; if somebody else was faster, the caller is told.

    In a script, because redis-py calls a connection that breaks after EXEC a WatchError, too: the write may be there.
    What was loaded is remembered for each thread: another caller's newer list is not what this one has seen.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.seen = threading.local()

    def load(self, session: str) -> list[dict[str, Any]]:
        raw = self.client.get(f"session:{session}")
        vars(self.seen)[session] = raw
        return self.parsed(raw)

    def save(self, session: str, messages: list[dict[str, Any]]) -> None:
        loaded = vars(self.seen).get(session) or b""
        if not self.client.eval(SWAP, 1, f"session:{session}", loaded, json.dumps(messages)):
            raise NotWritten(f"session {session} has changed since it was loaded; load it again")


def factory(endpoint: Endpoint) -> WholeList:
    return WholeList(endpoint)


def twin(endpoint: Endpoint) -> Compared:
    return Compared(endpoint)
