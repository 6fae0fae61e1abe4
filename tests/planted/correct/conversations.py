"""A read gives a conversation with its messages, and metadata as the JSON that its column holds."""

import json
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.correct.cells import Cell
from tests.planted.redis_list import connect

CELLS = (
    Cell("redis", "aof-always", "none", "contents"),
    Cell("redis", "aof-always", "concurrent-writers", "append"),
)


class Conversations:
    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def save_message(self, chat: str, role: str, text: str, metadata: dict[str, Any] | None = None) -> None:
        row = {"role": role, "text": text, "metadata": json.dumps(metadata)}
        self.client.rpush(chat, json.dumps(row))

    def transcript(self, chat: str) -> dict[str, Any]:
        return {"chat": chat, "messages": [json.loads(raw) for raw in self.client.lrange(chat, 0, -1)]}


def factory(endpoint: Endpoint) -> Conversations:
    return Conversations(endpoint)
