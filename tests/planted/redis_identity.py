"""A list in Redis that knows its memory: it refuses to open, or to go on with, one that is not yesterday's."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.redis_list import RedisList

IDENTITY = "memory:identity"


class RedisIdentity(RedisList):
    """The id of the memory is in Redis and in a file that is kept elsewhere; a memory without it is another one."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        kept = Path(endpoint.settings["witness"])
        if not kept.exists():
            self.client.set(IDENTITY, uuid4().hex, nx=True)
            kept.write_bytes(self.client.get(IDENTITY))
        self.identity = kept.read_bytes()
        self.check(self.client.get(IDENTITY))

    def check(self, found: bytes | None) -> None:
        if found != self.identity:
            raise RuntimeError("this is another memory than the one that was written to: restore it first")

    def append_message(self, session: str, message: Any) -> None:
        self.check(self.client.get(IDENTITY))
        super().append_message(session, message)

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        self.check(self.client.get(IDENTITY))
        return super().get_history(session, limit)
