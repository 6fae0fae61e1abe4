"""Targets for the kit: `recollect verify recollect.recall.targets:recall --engine chroma`.

`recall` and `recall_pgvector` are ours. `plain_chroma` is what many applications do: a Chroma collection with no rows
behind it. All three have the shape `append(session, messages)`, `history(session)` and `search(session)`. A search
returns both the listed rows and the hits of the index: where the two differ, the anomaly is `index-divergence`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from recollect.message import Damaged, Message, decode, encode
from recollect.recall.embedding import HashingEmbedder
from recollect.recall.opening import open_recall
from recollect.recall.recall import K_MAX, Recall

if TYPE_CHECKING:
    from recollect.verify.engines.endpoint import Endpoint

OPERATION_TIMEOUT_S = 5.0
QUERY = "note"
MARGIN = 100
"""How many more hits a search asks for than rows are listed; doubled while the answer comes back full. Otherwise
what others write meanwhile could push a hit out."""


class RecallTarget:
    """A session is a user and a message is a memory. Its text is the whole encoded message, so no field is lost."""

    def __init__(self, recall: Recall) -> None:
        self.recall = recall

    async def append(self, session: str, messages: Sequence[Message], *, turn: str | None = None) -> None:
        await self.recall.add(session, [encode(message).decode() for message in messages], turn=turn)

    async def history(self, session: str) -> list[Message | Damaged]:
        found: list[Message | Damaged] = []
        before = None
        while page := await self.recall.memories(session, before=before, limit=1_000):
            found += [
                decode(memory.text.encode()) if memory.damaged is None else Damaged(b"", memory.damaged)
                for memory in page
            ]
            before = page[-1].sequence
        return found[::-1]

    async def search(self, session: str) -> tuple[list[Message], list[Message]]:
        before = _intact(await self.history(session))
        k = min(len(before) + MARGIN, K_MAX)
        while len(found := (await self.recall.search(session, QUERY, k)).hits) == k < K_MAX:
            k = min(2 * k, K_MAX)
        hits = _intact(decode(hit.memory.text.encode()) for hit in found)
        return _listed(before, hits, _intact(await self.history(session))), hits

    async def forget(self, session: str) -> None:
        await self.recall.forget(session)

    async def close(self) -> None:
        await self.recall.close()


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

    def history(self, session: str) -> list[Message | Damaged]:
        found = self._collection.get(where={"session": session}, include=["documents", "metadatas"])
        rows = zip(found["metadatas"], found["documents"], strict=True)
        ordered = sorted(rows, key=lambda row: (row[0]["at"], row[0]["tick"]))
        return [decode(document.encode()) for _, document in ordered]

    def search(self, session: str) -> tuple[list[Message], list[Message]]:
        before = _intact(self.history(session))
        k = len(before) + MARGIN
        while len(found := self._nearest(session, k)) == k:
            k *= 2
        hits = _intact(decode(record.encode()) for record in found)
        return _listed(before, hits, _intact(self.history(session))), hits

    def _nearest(self, session: str, k: int) -> list[str]:
        answer = self._collection.query(
            query_embeddings=[list(self._embedder.vector(QUERY))],
            n_results=k,
            where={"session": session},
            include=["documents"],
        )
        return list(answer["documents"][0])

    def close(self) -> None:
        self._client.close()


async def recall(endpoint: Endpoint) -> RecallTarget:
    """Ours on Chroma: rows in a SQLite file next to the index."""
    assert endpoint.path is not None
    rows = f"sqlite:///{endpoint.path}/recollect-rows.db"
    # Flush as often as Chroma does by default, so that faults hit flushes.
    if endpoint.url.startswith("http"):
        return await _opened(endpoint, rows, f"{endpoint.url}?sync_threshold=1000")
    import chromadb  # noqa: F401 - takes seconds: spend them at the start, not on the first message

    return await _opened(endpoint, rows, f"chroma:///{endpoint.path}/recollect-index?sync_threshold=1000")


async def recall_pgvector(endpoint: Endpoint) -> RecallTarget:
    """Ours on PostgreSQL: rows and index in one database."""
    return await _opened(endpoint, endpoint.url, endpoint.url)


async def _opened(endpoint: Endpoint, rows: str, index: str) -> RecallTarget:
    witness = endpoint.settings.get("witness")
    # The index is under test, so it is asked even when there are few memories.
    opening = open_recall(rows, index=index, witness=witness, timeout_s=OPERATION_TIMEOUT_S, exact_rows_max=0)
    return RecallTarget(await opening)


def plain_chroma(endpoint: Endpoint) -> PlainChroma:
    return PlainChroma(endpoint)


def _listed(before: list[Message], found: list[Message], after: list[Message]) -> list[Message]:
    """What was listed before and after the search, and what came during it if the search found it."""
    during = {message.id for message in found} - {message.id for message in before}
    kept = {message.id for message in after}
    stayed = [message for message in before if message.id in kept]
    return [*stayed, *(message for message in after if message.id in during)]


def _intact(records: Iterable[Message | Damaged]) -> list[Message]:
    """Rows and index are compared by intact records only; damaged ones are judged when they are read."""
    return [record for record in records if isinstance(record, Message)]
