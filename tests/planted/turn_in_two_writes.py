"""The question and the answer of a turn are two writes: dying between them leaves half a turn."""

import json
from collections.abc import Sequence

from recollect import Message
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "kill-app-at-line", "turns", ("torn-turn",))


class TwoWrites(RedisList):
    def append(self, session: str, messages: Sequence[Message]) -> None:
        self.write(session, [json.dumps({"role": one.role, "content": one.content}) for one in messages])

    def write(self, session: str, records: list[str]) -> None:
        for record in records:
            self.client.rpush(self.key(session), record)

    def history(self, session: str, last: int | None = None) -> list[dict[str, str]]:
        return self.get_history(session, last or 10_000_000)


class OneWrite(TwoWrites):
    def write(self, session: str, records: list[str]) -> None:
        self.client.rpush(self.key(session), *records)


def factory(endpoint: Endpoint) -> TwoWrites:
    return TwoWrites(endpoint)


def twin(endpoint: Endpoint) -> OneWrite:
    return OneWrite(endpoint)
