"""Embedded Chroma as a vector index, in a folder that only this process uses.

The marker is an item of the collection, written in the same call as the vectors it describes, which Chroma puts in one
SQLite transaction. The vector files are another matter: HNSW files are rewritten in place every `SYNC_THRESHOLD`
changes and never fsynced, and the log behind them is purged. `recollect.recall.chroma_folder` notices when that goes
wrong.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from recollect.erasure import Unreached
from recollect.errors import MissingExtra, RecollectError
from recollect.private import FILE_MODE
from recollect.recall.chroma_folder import Generation, Slot
from recollect.recall.chroma_items import MARKER, configuration, deleted, marker_of, near, upserted
from recollect.recall.index import SYNC_THRESHOLD, IndexBroken, IndexMarker, Near
from recollect.recall.rows import Change

_THREADS = 4

_HEAP = Unreached(
    "data_level0.bin",
    "it may hold an erased vector: Chroma seems to write unused room as it finds it in memory; to be sure, start the "
    "process again and erase again",
)
"""Found once, with Chroma 1.5.9, in the file of an index that was built after the erasure. Why is a guess."""

Value = TypeVar("Value")


class ChromaFolderIndex:
    """Chroma inside this process, in a folder that no other process uses.

    Each process takes the first free slot of the folder (a lock that dies with it) and follows the rows by itself. So a
    Chroma folder has one writer and no second reader, and what other processes write arrives through the rows.
    """

    name = "chroma (folder)"

    def __init__(
        self, folder: Path, sync_threshold: int = SYNC_THRESHOLD, file_mode: int | None = FILE_MODE
    ) -> None:
        self._folder = folder
        self._file_mode = file_mode
        self._sync_threshold = sync_threshold
        self._threads = ThreadPoolExecutor(_THREADS, "recollect-chroma")  # Chroma's calls block
        self._collection: Any = None
        self._slot: Slot | None = None
        self._generation: Generation | None = None
        self._client: Any = None

    async def open(self) -> IndexMarker | None:
        return await self._call(self._open)

    async def reset(self, marker: IndexMarker) -> None:
        await self._call(self._reset, marker)

    async def apply(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        await self._call(self._apply, changes, marker)

    async def complete(self) -> None:
        return

    def erased(self) -> tuple[list[str], list[Unreached]]:
        """Chroma's own deletion leaves the vector in its files, so a rebuilt index gets a new folder, and the old one
        is deleted. Slots of processes that have ended are emptied; they are rebuilt when next used."""
        if self._slot is None or self._generation is None:
            return [], [Unreached(str(self._folder), "the index is closed")]
        left = self._slot.left_beside(self._generation)
        busy = self._slot.empty_others()
        why = "another process uses it; let it erase, too, or end it and erase again"
        return [str(self._folder)], [
            *(Unreached(str(path), "it could not be deleted; delete the folder") for path in left),
            *(Unreached(str(path), why) for path in busy),
            _HEAP,
        ]

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]:
        if self._generation is None or not self._generation.present():
            raise IndexBroken(f"{self._folder}: the folder of the index was taken away")
        return await self._call(_query, self._collection, user, vector, k)

    async def vectors(self, sequences: Sequence[int]) -> dict[int, bytes]:
        return await self._call(_vectors, self._collection, sequences)

    async def count(self) -> int:
        return await self._call(_count, self._collection)

    async def close(self) -> None:
        await self._call(self._close)
        self._threads.shutdown()

    async def _call(self, work: Callable[..., Value], *arguments: Any) -> Value:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        except RecollectError:
            raise
        except Exception as error:  # Chroma lets through whatever its parts raise
            raise IndexBroken(f"{self.name}: {type(error).__name__}: {error}") from error
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # from its compiled part; not an Exception
                raise IndexBroken(f"{self.name}: {error}") from error
            raise

    def _open(self) -> IndexMarker | None:
        self._leave()
        if self._slot is None:
            self._slot = Slot.take(self._folder, self._file_mode)
        generation = self._slot.newest()
        if generation is None:
            return None
        if not generation.trusted():  # not even loaded: a torn file can crash the process
            generation.discard()
            return None
        try:
            self._enter(generation)
            names = self._client.list_collections()
            self._collection = self._client.get_collection(names[0].name, embedding_function=None)
            return _read_marker(self._collection)
        except Exception:
            self._leave()
            return None

    def _reset(self, marker: IndexMarker) -> None:
        self._leave()
        if self._slot is None:
            self._slot = Slot.take(self._folder, self._file_mode)
        generation = self._slot.fresh()
        self._slot.discard_others(generation)
        self._enter(generation)
        self._collection = _create(self._client, "recall-index", self._sync_threshold)
        _apply(self._collection, [], marker)
        generation.begin()

    def _apply(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        generation = self._generation
        if generation is None or not generation.present():
            raise IndexBroken(f"{self._folder}: the folder of the index was taken away")
        try:
            with generation.changing(len(changes) + 1, self._sync_threshold):
                _apply(self._collection, changes, marker)
        except BaseException:
            # The folder is in doubt from here on; and if the disk is full, the rows need the space more.
            self._leave()
            generation.discard()
            raise

    def _enter(self, generation: Generation) -> None:
        chromadb = _chromadb()
        settings = chromadb.config.Settings(anonymized_telemetry=False)
        # Every generation has a new path, so Chroma's cache of clients by path never gives us an old one.
        self._client = chromadb.PersistentClient(str(generation.path), settings=settings)
        self._generation = generation

    def _leave(self) -> None:
        client, self._client, self._collection, self._generation = self._client, None, None, None
        if client is not None:
            client.close()

    def _close(self) -> None:
        self._leave()
        if self._slot is not None:
            self._slot.release()
            self._slot = None


# ---- calls on a collection


def _create(client: Any, name: str, sync_threshold: int) -> Any:
    return client.create_collection(
        name, embedding_function=None, configuration=configuration(sync_threshold)
    )


def _apply(collection: Any, changes: Sequence[Change], marker: IndexMarker) -> None:
    gone = deleted(changes)
    if gone:
        collection.delete(ids=gone)
    items = upserted(changes, marker)
    collection.upsert(ids=items.ids, embeddings=list(map(_vector, items.vectors)), metadatas=items.metadatas)


def _read_marker(collection: Any) -> IndexMarker | None:
    found = collection.get(ids=[MARKER], include=["metadatas"])["metadatas"]
    return marker_of(found[0]) if found else None


def _query(collection: Any, user: bytes, vector: bytes, k: int) -> list[Near]:
    if collection is None:
        raise IndexBroken("the index is not open")
    return near(
        collection.query(
            query_embeddings=[_vector(vector)], n_results=k, where={"user": user.hex()}, include=["distances"]
        )
    )


def _vectors(collection: Any, sequences: Sequence[int]) -> dict[int, bytes]:
    """Chroma reads them from its vector files, so a vector missing there is missing here, or an error."""
    import numpy as np

    if collection is None:
        raise IndexBroken("the index is not open")
    found = collection.get(ids=[str(sequence) for sequence in sequences], include=["embeddings"])
    pairs = zip(found["ids"], found["embeddings"], strict=True)
    return {int(id_): np.asarray(vector, dtype=np.float32).tobytes() for id_, vector in pairs}


def _count(collection: Any) -> int:
    """Without the marker."""
    if collection is None:
        raise IndexBroken("the index is not open")
    return int(collection.count()) - 1


def _vector(raw: bytes) -> Any:
    import numpy as np

    return np.frombuffer(raw, dtype=np.float32)


def _chromadb() -> Any:
    try:
        import chromadb
        import chromadb.config
    except ImportError as error:
        raise MissingExtra("chromadb is not installed: pip install 'recollect[chroma]'") from error
    return chromadb
