"""The class of its messages has metadata, the records have not."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import RedisList

PLANTED = Planted("redis", "aof-always", "none", "contents", ("corrupted",), variant="one-writer")


@dataclass
class Entry:
    role: str
    content: str
    metadata: dict[str, Any] = field(default_factory=dict)


class Entries(RedisList):
    def append_message(self, session: str, message: Entry) -> None:
        self.client.rpush(self.key(session), json.dumps(asdict(message)))

    def get_history(self, session: str, limit: int = 100) -> list[Any]:
        return [Entry(**record) for record in super().get_history(session, limit)]


class WithoutMetadata(Entries):
    def append_message(self, session: str, message: Entry) -> None:
        super().append_message(session, Entry(message.role, message.content))


def factory(endpoint: Endpoint) -> WithoutMetadata:
    return WithoutMetadata(endpoint)


def twin(endpoint: Endpoint) -> Entries:
    return Entries(endpoint)
