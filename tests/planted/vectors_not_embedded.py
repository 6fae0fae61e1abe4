"""A vector memory, `add_texts` and `similarity_search`: of several texts at once, only the last gets its vector. Those
without one are listed, and never found."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted
from tests.planted.redis_list import connect

PLANTED = Planted("redis", "aof-always", "none", "search", ("index-divergence",), variant="one-writer")


@dataclass
class Document:
    id: str
    page_content: str
    metadata: dict[str, Any]


class Embedded:
    """Everything is equally similar: which order the answers have is not what is looked at."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = connect(endpoint)

    def add_texts(self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None) -> list[str]:
        rows = {str(uuid.uuid4()): row for row in zip(texts, metadatas or (), strict=True)}
        with self.client.pipeline(transaction=True) as both:
            both.hset("rows", mapping={one: json.dumps(row) for one, row in rows.items()})
            both.sadd("vectors", *self.embedded(list(rows)))
            both.execute()
        return list(rows)

    def embedded(self, ids: list[str]) -> list[str]:
        return ids

    def get(self, where: dict[str, Any] | None = None) -> dict[str, Any]:
        rows = [
            one
            for one in map(json.loads, self.client.hvals("rows"))
            if (where or {}).items() <= one[1].items()
        ]
        return {"documents": [row[0] for row in rows], "metadatas": [row[1] for row in rows]}

    def similarity_search(
        self,
        query: str,
        k: int = 4,
        filter: dict[str, Any] | None = None,  # noqa: A002 — LangChain's name
    ) -> list[Document]:
        ids = [one.decode() for one in self.client.smembers("vectors")]
        rows = zip(ids, self.client.hmget("rows", ids) if ids else (), strict=True)
        found = [Document(one, *json.loads(raw)) for one, raw in rows]
        return [one for one in found if (filter or {}).items() <= one.metadata.items()][:k]


class LastOnly(Embedded):
    def embedded(self, ids: list[str]) -> list[str]:
        return ids[-1:]


def factory(endpoint: Endpoint) -> LastOnly:
    return LastOnly(endpoint)


def twin(endpoint: Endpoint) -> Embedded:
    return Embedded(endpoint)
