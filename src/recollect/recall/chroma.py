"""Chroma as a vector index: a server, or a folder of this process's own.

The marker is an item of the collection, written in the same call as the vectors it speaks of, which Chroma keeps in one
SQLite transaction. Its vectors are another matter: HNSW files are rewritten in place every `SYNC_THRESHOLD` changes and
never fsynced, and the log behind them is purged. What can go wrong there is met by `recollect.recall.chroma_folder` for
a folder, and by `Indexer`'s probes for both.

The collection's name carries the rows' identity and a random generation: an index that is in doubt is left behind, not
repaired.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from recollect.errors import CannotOpen, MissingExtra
from recollect.recall.chroma_folder import Generation, Slot
from recollect.recall.index import IndexBroken, Marker, Near
from recollect.recall.rows import Change

SYNC_THRESHOLD = 1_000
_MARKER = "marker"
_THREADS = 4

Value = TypeVar("Value")


class _Chroma:
    """What the two have in common: one collection, used from threads because Chroma's client blocks."""

    name = "chroma"

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "recollect-chroma")
        self._collection: Any = None

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]:
        return await self._call(_query, self._collection, user, vector, k)

    async def count(self) -> int:
        return await self._call(_count, self._collection)

    async def _call(self, work: Callable[..., Value], *arguments: Any) -> Value:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except IndexBroken:
            raise
        except Exception as error:  # Chroma raises whatever its parts raise
            raise IndexBroken(f"{self.name}: {type(error).__name__}: {error}") from error
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # of its compiled part, outside of Exception
                raise IndexBroken(f"{self.name}: {error}") from error
            raise


class ChromaFolderIndex(_Chroma):
    """Chroma inside this process, in a folder that no other process uses.

    Each process takes the first free slot of the folder (a lock that dies with it) and follows the rows by itself. So
    there is one writer to a Chroma folder and no second reader, and what other processes write comes from the rows.
    """

    name = "chroma (folder)"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._slot: Slot | None = None
        self._generation: Generation | None = None
        self._client: Any = None

    async def open(self) -> Marker | None:
        return await self._call(self._open)

    async def reset(self, marker: Marker) -> None:
        await self._call(self._reset, marker)

    async def apply(self, changes: Sequence[Change], marker: Marker) -> None:
        await self._call(self._apply, changes, marker)

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]:
        if self._generation is None or not self._generation.present():
            raise IndexBroken(f"{self._folder}: the folder of the index was taken away")
        return await super().query(user, vector, k)

    async def close(self) -> None:
        await self._call(self._close)
        self._threads.shutdown()

    def _open(self) -> Marker | None:
        self._leave()
        if self._slot is None:
            self._slot = Slot.take(self._folder)
        generation = self._slot.newest()
        if generation is None or not generation.trusted():
            return None  # not even loaded: a torn file can bring the process down
        try:
            self._enter(generation)
            names = self._client.list_collections()
            self._collection = self._client.get_collection(names[0].name, embedding_function=None)
            return _read_marker(self._collection)
        except Exception:
            self._leave()
            return None

    def _reset(self, marker: Marker) -> None:
        self._leave()
        if self._slot is None:
            self._slot = Slot.take(self._folder)
        generation = self._slot.fresh()
        self._enter(generation)
        self._collection = _create(self._client, "recall-index")
        _apply(self._collection, [], marker)
        generation.begin()
        self._slot.discard_others(generation)

    def _apply(self, changes: Sequence[Change], marker: Marker) -> None:
        generation = self._generation
        if generation is None or not generation.present():
            raise IndexBroken(f"{self._folder}: the folder of the index was taken away")
        with generation.changing(len(changes) + 1, SYNC_THRESHOLD):
            _apply(self._collection, changes, marker)

    def _enter(self, generation: Generation) -> None:
        chromadb = _chromadb()
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        # Every generation is another path, so Chroma's cache of clients by path never gives us an old one.
        self._client = chromadb.PersistentClient(str(generation.path), settings=settings)
        self._generation = generation

    def _leave(self) -> None:
        client, self._client, self._collection, self._generation = self._client, None, None, None
        if client is not None:
            _close_client(client)

    def _close(self) -> None:
        self._leave()
        if self._slot is not None:
            self._slot.release()
            self._slot = None


class ChromaServerIndex(_Chroma):
    """A Chroma server, shared by any number of processes: all of them apply the same changes, which does no harm."""

    name = "chroma (server)"

    def __init__(self, url: str, rows: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._host, self._port, self._ssl = parts.hostname, parts.port or 8000, parts.scheme == "https"
        if self._host is None:
            raise CannotOpen(f"{url}: a Chroma server is http://host:port")
        self._prefix = f"recall-{rows}-"
        self._client: Any = None

    async def open(self) -> Marker | None:
        return await self._call(self._open)

    async def reset(self, marker: Marker) -> None:
        await self._call(self._reset, marker)

    async def apply(self, changes: Sequence[Change], marker: Marker) -> None:
        await self._call(_apply, self._collection, changes, marker)

    async def close(self) -> None:
        await self._call(self._leave)
        self._threads.shutdown()

    def _open(self) -> Marker | None:
        self._leave()
        chromadb = _chromadb()
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        self._client = chromadb.HttpClient(host=self._host, port=self._port, ssl=self._ssl, settings=settings)
        names = self._names()
        if not names:
            return None
        self._collection = self._client.get_collection(names[-1], embedding_function=None)
        return _read_marker(self._collection)

    def _reset(self, marker: Marker) -> None:
        if self._client is None:
            self._open()
        old = self._names()
        # Names sort by time, so that every process finds the newest last.
        number = 1 + max((int(name[len(self._prefix) :].split("-")[0]) for name in old), default=0)
        self._collection = _create(self._client, f"{self._prefix}{number:08d}-{uuid.uuid4().hex[:8]}")
        _apply(self._collection, [], marker)
        for name in old:
            try:
                self._client.delete_collection(name)
            except Exception:
                continue

    def _names(self) -> list[str]:
        names: list[str] = []
        while page := self._client.list_collections(limit=100, offset=len(names)):
            names += [collection.name for collection in page]
        return sorted(name for name in names if name.startswith(self._prefix))

    def _leave(self) -> None:
        client, self._client, self._collection = self._client, None, None
        if client is not None:
            _close_client(client)


# ---- calls on a collection


def _create(client: Any, name: str) -> Any:
    configuration = {"hnsw": {"space": "cosine", "sync_threshold": SYNC_THRESHOLD}}
    return client.create_collection(name, embedding_function=None, configuration=configuration)


def _apply(collection: Any, changes: Sequence[Change], marker: Marker) -> None:
    import numpy as np

    gone = [str(change.sequence) for change in changes if change.vector is None]
    # A row that came and went within these changes comes without its vector, so the order does not matter.
    came = [change for change in changes if change.vector is not None and change.user is not None]
    if gone:
        collection.delete(ids=gone)
    place = np.zeros(marker.dimension, dtype=np.float32)
    place[0] = 1.0
    vectors = [place, *(_vector(change.vector) for change in came)]
    state = {
        "user": "",
        "rows": marker.rows,
        "space": marker.space,
        "dimension": marker.dimension,
        "through": marker.through,
    }
    collection.upsert(
        ids=[_MARKER, *(str(change.sequence) for change in came)],
        embeddings=vectors,
        metadatas=[state, *({"user": change.user.hex()} for change in came if change.user is not None)],
    )


def _read_marker(collection: Any) -> Marker | None:
    found = collection.get(ids=[_MARKER], include=["metadatas"])["metadatas"]
    if not found:
        return None
    state = found[0]
    return Marker(str(state["rows"]), int(state["space"]), int(state["dimension"]), int(state["through"]))


def _query(collection: Any, user: bytes, vector: bytes, k: int) -> list[Near]:
    if collection is None:
        raise IndexBroken("the index is not open")
    answer = collection.query(
        query_embeddings=[_vector(vector)], n_results=k, where={"user": user.hex()}, include=["distances"]
    )
    pairs = zip(answer["ids"][0], answer["distances"][0], strict=True)
    return [Near(int(id_), 1.0 - float(distance)) for id_, distance in pairs]


def _count(collection: Any) -> int:
    """Without the marker."""
    if collection is None:
        raise IndexBroken("the index is not open")
    return int(collection.count()) - 1


def _vector(raw: bytes | None) -> Any:
    import numpy as np

    assert raw is not None
    return np.frombuffer(raw, dtype=np.float32)


def _close_client(client: Any) -> None:
    close = getattr(client, "close", None)
    if close is not None:
        close()


def _chromadb() -> Any:
    try:
        import chromadb
        import chromadb.config
    except ImportError as error:
        raise MissingExtra("chromadb is not installed: pip install 'recollect[chroma]'") from error
    return chromadb
