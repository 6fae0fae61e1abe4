"""LangChain's vector stores, with the embedder that needs no model: what is judged is whether a text is found, and not
how near it is."""

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings

from recollect.recall.embedding import HashingEmbedder
from recollect.verify.engines.endpoint import Endpoint

_NAME = "memories"


class _Hashed(Embeddings):
    def __init__(self) -> None:
        self._embedder = HashingEmbedder(64)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return list(self._embedder.vector(text))


def chroma(endpoint: Endpoint) -> Any:
    import chromadb  # each is a distribution of its own
    from chromadb.config import Settings
    from langchain_chroma import Chroma

    class InOneProcess(Chroma):  # type: ignore[misc]
        """On a folder: Chroma documents that it is not for several processes, which are what its server is for
        (cookbook.chromadb.dev, system constraints)."""

        traits = ("one_process",)

    settings = Settings(anonymized_telemetry=False)
    if endpoint.host is not None and endpoint.port is not None:
        served = chromadb.HttpClient(host=endpoint.host, port=endpoint.port, settings=settings)
        return Chroma(_NAME, _Hashed(), client=served)
    return InOneProcess(
        _NAME, _Hashed(), client=chromadb.PersistentClient(str(endpoint.path), settings=settings)
    )


# ---- pgvector


def prepare_pgvector(endpoint: Endpoint) -> None:
    """Its tables are made by the first store: two at once would be in each other's way."""
    pgvector(endpoint)


def pgvector(endpoint: Endpoint) -> Any:
    from langchain_postgres import PGVector

    url = endpoint.url.replace("postgresql://", "postgresql+psycopg://", 1)
    return PGVector(_Hashed(), connection=url, collection_name=_NAME)


# ---- LanceDB


def lancedb(endpoint: Endpoint, session: str) -> Any:
    """A table for each session: to filter, LanceDB takes a condition in SQL."""
    from langchain_community.vectorstores import LanceDB

    class Listed(LanceDB):
        """Rows are asked of the table itself: LangChain's class has no method for it."""

        def get(self, where: dict[str, Any] | None = None) -> dict[str, list[Any]]:
            table = self.get_table()
            if table is None:
                return {"documents": [], "metadatas": []}
            rows = table.to_arrow().to_pylist()
            return {
                "documents": [row["text"] for row in rows],
                "metadatas": [row["metadata"] for row in rows],
            }

        def similarity_search(self, query: str, k: int | None = None, **options: Any) -> list[Any]:
            """Before the first text there is no table to search."""
            return [] if self.get_table() is None else super().similarity_search(query, k, **options)

    folder = _folder(endpoint, "lancedb")
    # The default mode replaces the table with every call.
    return Listed(uri=str(folder), embedding=_Hashed(), table_name=_quoted(session), mode="append")


# ---- FAISS


class _Saved:
    """An index that lives in a process: it is loaded before every use and saved with every text.

    One writer at a time, and no reader meanwhile, because the index is two files. That lock is the application's part.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._embedder = _Hashed()

    def add_texts(self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None) -> list[str]:
        from langchain_community.vectorstores import FAISS

        with self._locked(fcntl.LOCK_EX):
            index = self._loaded()
            if index is None:
                index = FAISS.from_texts(texts, self._embedder, metadatas)
                ids = list(index.index_to_docstore_id.values())
            else:
                ids = index.add_texts(texts, metadatas)
            index.save_local(str(self._folder))
            return ids

    def similarity_search(self, query: str, k: int = 4) -> list[Any]:
        with self._locked(fcntl.LOCK_SH):
            index = self._loaded()
        return [] if index is None else index.similarity_search(query, k)

    def get_by_ids(self, ids: list[str]) -> list[Any]:
        with self._locked(fcntl.LOCK_SH):
            index = self._loaded()
        return [] if index is None else index.get_by_ids(ids)

    def _loaded(self) -> Any:
        from langchain_community.vectorstores import FAISS

        if not (self._folder / "index.faiss").exists():
            return None
        return FAISS.load_local(str(self._folder), self._embedder, allow_dangerous_deserialization=True)

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, how)
            yield


def faiss(endpoint: Endpoint, session: str) -> Any:
    return _Saved(_folder(endpoint, "faiss", _quoted(session)))


def _folder(endpoint: Endpoint, *names: str) -> Path:
    """Beside SQLite's file, so that the same disk fails."""
    assert endpoint.path is not None
    folder = endpoint.path.parent.joinpath(*names)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _quoted(session: str) -> str:
    """Letters and digits only: a file name and a table name that no other session has."""
    return f"s{session.encode('utf-8', 'surrogatepass').hex()}"
