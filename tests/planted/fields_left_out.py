"""Takes any mapping, and keeps role and content of it. It never said that it keeps more, and never says that it does
not: whoever hands it tool calls loses them."""

from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted(
    "redis", "aof-always", "none", "contents", ("corrupted",), status="exposed", variant="one-writer"
)


class TwoFields(RedisList):
    def append_message(self, session: str, message: Any) -> None:
        super().append_message(session, {"role": message["role"], "content": message["content"]})


def factory(endpoint: Endpoint) -> TwoFields:
    return TwoFields(endpoint)


class Refusing(TwoFields):
    """It keeps no more, and says so."""

    def append_message(self, session: str, message: Any) -> None:
        if unknown := message.keys() - {"role", "content"}:
            raise TypeError(f"no place for {sorted(unknown)}")
        super().append_message(session, message)


def twin(endpoint: Endpoint) -> Refusing:
    return Refusing(endpoint)
