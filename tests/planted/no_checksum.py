"""A list in Redis without a checksum: a bit that flips in the append-only file comes back as another word."""

import json
import zlib
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis",
    "aof-always",
    "bit-rot",
    "turns",
    ("corrupted",),
    status="exposed",
    twin_status="documented-loss",
    variant="records",
)


class Checked(RedisList):
    """Every record has a checksum of its text; one that does not match is an error."""

    def append_message(self, session: str, message: Any) -> None:
        text = json.dumps(message)
        self.client.rpush(self.key(session), f"{zlib.crc32(text.encode()):08x}{text}")

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        found = []
        for raw in self.client.lrange(self.key(session), -limit, -1):
            checksum, text = raw[:8], raw[8:]
            if checksum != b"%08x" % zlib.crc32(text):
                raise ValueError(f"a record of {session} is damaged")
            found.append(json.loads(text))
        return found


def factory(endpoint: Endpoint) -> RedisList:
    return RedisList(endpoint)


def twin(endpoint: Endpoint) -> Checked:
    return Checked(endpoint)
