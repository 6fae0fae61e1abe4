"""Lists that are trimmed on every write, by stores that say how much they keep: `9+ a | a` goes over that."""

import json
from typing import Any

from tests.planted.redis_list import RedisList


class AsDeclared(RedisList):
    traits = ("keeps_last=10",)
    kept = 10

    def append_message(self, session: str, message: Any) -> None:
        with self.client.pipeline() as pipe:
            pipe.rpush(self.key(session), json.dumps(message))
            pipe.ltrim(self.key(session), -self.kept, -1)
            pipe.execute()


class OneFewer(AsDeclared):
    kept = 9
