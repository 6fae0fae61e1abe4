"""A vector memory for each session: a search looks at the first hundred vectors. Asked by their ids, all are there."""

import json
import uuid
from collections.abc import Iterable
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect
from tests.planted.vectors_not_embedded import Document

PLANTED = Planted("redis", "aof-always", "none", "search", ("hidden",), variant="one-writer")


class Whole:
    page = -1

    def __init__(self, endpoint: Endpoint, session: str) -> None:
        self.client: Any = connect(endpoint)
        self.key = f"collection:{session}"

    def add_texts(self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None) -> list[str]:
        rows = [(str(uuid.uuid4()), *row) for row in zip(texts, metadatas or (), strict=True)]
        with self.client.pipeline(transaction=True) as both:
            both.rpush(self.key, *(row[0] for row in rows))
            both.hset(f"rows of {self.key}", mapping={row[0]: json.dumps(row) for row in rows})
            both.execute()
        return [row[0] for row in rows]

    def get_by_ids(self, ids: list[str]) -> list[Document]:
        found = self.client.hmget(f"rows of {self.key}", ids) if ids else []
        return [Document(*json.loads(raw)) for raw in found if raw is not None]

    def similarity_search(self, query: str, k: int = 4) -> list[Document]:
        ids = self.client.lrange(self.key, 0, self.page)
        return self.get_by_ids([one.decode() for one in ids])[:k]


class FirstPage(Whole):
    page = 99


def factory(endpoint: Endpoint, session: str) -> FirstPage:
    return FirstPage(endpoint, session)


def twin(endpoint: Endpoint, session: str) -> Whole:
    return Whole(endpoint, session)
