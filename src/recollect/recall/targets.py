"""Targets for the kit: `recollect verify recollect.recall.targets:recall --engine chroma`.

`recall` and `recall_pgvector` are ours. `plain_chroma` is what many applications do: a Chroma collection with no rows
behind it. All three have the shape `append(session, messages)`, `history(session)`, and `search(session, text)`, so
that what is listed can be compared with what is found.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from recollect.message import Damaged, Message, decode, encode
from recollect.recall.embedding import HashingEmbedder
from recollect.recall.opening import open_recall
from recollect.recall.recall import Recall

SEARCH_MAX = 10_000


class Endpoint(Protocol):
    """What is used of the kit's endpoint."""

    @property
    def url(self) -> str: ...
    @property
    def path(self) -> Path | None: ...


class RecallTarget:
    """A session is a user; a message is a memory, kept as its record, so that nothing of it is lost."""

    def __init__(self, rows: str, index: str) -> None:
        self._rows, self._index = rows, index
        self._opening = asyncio.Lock()
        self._recall: Recall | None = None

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        recall = await self._opened()
        await recall.add(session, [encode(message).decode() for message in messages], turn=messages[0].id)

    async def history(self, session: str) -> list[Message]:
        recall = await self._opened()
        found: list[str] = []
        before = None
        while page := await recall.memories(session, before=before, limit=1_000):
            found += [memory.text for memory in page]
            before = page[-1].sequence
        return _messages(reversed(found))

    async def search(self, session: str, text: str, k: int = SEARCH_MAX) -> list[Message]:
        recall = await self._opened()
        return _messages(hit.memory.text for hit in (await recall.search(session, text, k)).hits)

    async def close(self) -> None:
        if self._recall is not None:
            await self._recall.close()

    async def _opened(self) -> Recall:
        async with self._opening:
            if self._recall is None:
                self._recall = await open_recall(self._rows, index=self._index)
            return self._recall


class PlainChroma:
    """A collection and nothing else: the collection is the memory."""

    def __init__(self, endpoint: Endpoint) -> None:
        import chromadb
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        if endpoint.url.startswith("http"):
            host, _, port = endpoint.url.removeprefix("http://").partition(":")
            self._client: Any = chromadb.HttpClient(host=host, port=int(port), settings=settings)
        else:
            self._client = chromadb.PersistentClient(str(endpoint.path), settings=settings)
        self._collection: Any = self._client.get_or_create_collection(
            "plain", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
        self._embedder = HashingEmbedder()
        self._ticks = itertools.count()

    def append(self, session: str, messages: Sequence[Message]) -> None:
        records = [encode(message).decode() for message in messages]
        self._collection.add(
            ids=[message.id for message in messages],
            documents=records,
            embeddings=[list(self._embedder.vector(record)) for record in records],
            metadatas=[
                {"session": session, "at": time.time_ns(), "tick": next(self._ticks)} for _ in messages
            ],
        )

    def history(self, session: str) -> list[Message]:
        found = self._collection.get(where={"session": session}, include=["documents", "metadatas"])
        rows = zip(found["metadatas"], found["documents"], strict=True)
        ordered = sorted(rows, key=lambda row: (row[0]["at"], row[0]["tick"]))
        return _messages(document for _, document in ordered)

    def search(self, session: str, text: str, k: int = SEARCH_MAX) -> list[Message]:
        found = self._collection.query(
            query_embeddings=[list(self._embedder.vector(text))],
            n_results=k,
            where={"session": session},
            include=["documents"],
        )
        return _messages(found["documents"][0])

    def close(self) -> None:
        self._collection = self._client = None


def recall(endpoint: Endpoint) -> RecallTarget:
    """Ours on Chroma: rows in a SQLite file next to the index."""
    assert endpoint.path is not None
    rows = f"sqlite:///{endpoint.path}/recollect-rows.db"
    served = endpoint.url.startswith("http")
    # Flushed as often as Chroma itself would, so that faults meet flushes.
    folder = f"chroma:///{endpoint.path}/recollect-index?sync_threshold=1000"
    return RecallTarget(rows, endpoint.url if served else folder)


def recall_pgvector(endpoint: Endpoint) -> RecallTarget:
    """Ours on PostgreSQL: rows and index in one database."""
    return RecallTarget(endpoint.url, endpoint.url)


def plain_chroma(endpoint: Endpoint) -> PlainChroma:
    return PlainChroma(endpoint)


def _messages(records: Any) -> list[Message]:
    decoded = (decode(record.encode()) for record in records)
    return [message for message in decoded if not isinstance(message, Damaged)]
