"""It says that it keeps the last twelve of a session, and loses one out of their middle now and then."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.keeps_the_last import Window
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "none", "trimmed", ("dropped",), variant="one-writer")


class Twelve(Window):
    traits = ("keeps_last=12",)

    def append_message(self, session: str, message: Any) -> None:
        with self.client.pipeline() as pipe:
            pipe.rpush(self.key(session), json.dumps(message))
            pipe.ltrim(self.key(session), -12, -1)
            pipe.execute()


class WithAHole(Twelve):
    written = 0

    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, message)
        self.written += 1
        if self.written % 16 == 0 and (fourth := self.client.lindex(self.key(session), -4)) is not None:
            self.client.lrem(self.key(session), 1, fourth)


def factory(endpoint: Endpoint) -> WithAHole:
    return WithAHole(endpoint)


def twin(endpoint: Endpoint) -> Twelve:
    return Twelve(endpoint)
