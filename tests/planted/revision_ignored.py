"""Conversations that are saved as one object, with a revision that nobody compares."""

import json
from dataclasses import dataclass, field
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect
from tests.planted.whole_list_overwritten import SWAP

PLANTED = Planted("redis", "aof-always", "concurrent-writers", "turns", ("lost-update",))


@dataclass
class Conversation:
    conversation_id: str
    messages: list[Any] = field(default_factory=list)
    revision: bytes = b""


class ConversationConflict(Exception):
    """It was saved since it was loaded."""


class Ignoring:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    async def load(self, conversation_id: str, *, limit: int | None = None) -> Conversation | None:
        raw = self.client.get(conversation_id)
        return None if raw is None else Conversation(conversation_id, json.loads(raw), raw)

    async def save(self, conversation: Conversation, *, scope: str | None = None) -> None:
        self.write(conversation, json.dumps(conversation.messages))

    def write(self, conversation: Conversation, text: str) -> None:
        self.client.set(conversation.conversation_id, text)


class Comparing(Ignoring):
    def write(self, conversation: Conversation, text: str) -> None:
        if not self.client.eval(SWAP, 1, conversation.conversation_id, conversation.revision, text):
            raise ConversationConflict(conversation.conversation_id)


def factory(endpoint: Endpoint) -> Ignoring:
    return Ignoring(endpoint)


def twin(endpoint: Endpoint) -> Comparing:
    return Comparing(endpoint)
