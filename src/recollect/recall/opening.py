"""`open_recall`: rows by the scheme of their address, the index by its own.

    async with open_recall("sqlite:///memory.db", index="chroma:///memory.index") as recall: …

| index | |
|---|---|
| ``chroma:///folder`` | embedded Chroma; each process has its own part of the folder; ``?sync_threshold=`` |
| ``chroma+http://host:8000``, ``http://host:8000`` | a Chroma server; ``?sync_threshold=`` |
| ``pgvector://host/db``, ``postgresql://host/db`` | pgvector |
| None | none: searches compare all of a user's rows, one by one |
"""

import logging
from collections.abc import Callable, Generator
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from recollect import telemetry
from recollect.bounds import bounded
from recollect.errors import CannotOpen, MissingExtra, RecollectError
from recollect.private import FILE_MODE
from recollect.recall.embedding import Embedder, EmbedderChanged, HashingEmbedder
from recollect.recall.index import SYNC_THRESHOLD, VectorIndex
from recollect.recall.indexing import Indexer, Progress
from recollect.recall.llm import LLM, StandIn
from recollect.recall.recall import EXACT_ROWS_MAX, Recall
from recollect.recall.rows import Rows, Space, memory_of
from recollect.secret import check_address, scheme_of, shown
from recollect.store import Durability, MemoryStore, Options
from recollect.witness import Witness

log = logging.getLogger("recollect")

REEMBEDDED_AT_ONCE = 200


class RecallOpening:
    """What `open_recall` returns: ``await`` it, or use it as ``async with``, which also closes it."""

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._recall: Recall | None = None
        self.scratch = False
        """Whether it is thrown away after use: then nothing is said about what could be lost."""

    def __await__(self) -> Generator[Any, None, Recall]:
        return self._open().__await__()

    async def __aenter__(self) -> Recall:
        self._recall = await self._open()
        return self._recall

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._recall is not None:
            await self._recall.close()

    async def _open(self) -> Recall:
        opening = _open(**self._arguments, scratch=self.scratch)
        return await telemetry.opened(self._arguments["url"], opening, telemetry.RECALL)


def open_recall(
    url: str,
    *,
    index: str | None = None,
    embedder: Embedder | None = None,
    llm: LLM | None = None,
    conversations: MemoryStore | None = None,
    durability: Durability | str | None = None,
    witness: str | Path | None = None,
    reembed: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    timeout_s: float = 10.0,
    pool_size: int = 8,
    exact_rows_max: int = EXACT_ROWS_MAX,
    file_mode: int | None = FILE_MODE,
) -> RecallOpening:
    """Opens the long-term memory whose rows are at `url` (``sqlite:///memory.db`` or ``postgresql://host/db``).

    The default `embedder` is the hashing one: lexical, nothing to download. If the memory was embedded by another one,
    opening is refused, or with `reembed` the memory is embedded again first. `on_progress` is called for every batch
    of a re-embedding, or of a rebuild or catch-up of the index. If a user has at most `exact_rows_max` memories, they
    are compared one by one instead of asking the index.
    """
    options = Options.checked(
        {
            "durability": durability,
            "witness": witness,
            "timeout_s": timeout_s,
            "pool_size": pool_size,
            "file_mode": file_mode,
        }
    )
    return RecallOpening(
        url=url,
        index=index,
        embedder=embedder or HashingEmbedder(),
        llm=llm or StandIn(),
        conversations=conversations,
        options=options,
        reembed=reembed,
        on_progress=on_progress,
        exact_rows_max=bounded("exact_rows_max", exact_rows_max),
    )


async def _open(
    url: str,
    index: str | None,
    embedder: Embedder,
    llm: LLM,
    conversations: MemoryStore | None,
    options: Options,
    reembed: bool,
    on_progress: Callable[[Progress], None] | None,
    exact_rows_max: int,
    scratch: bool,
) -> Recall:
    rows = await _open_rows(url, options)
    try:
        witness = None
        if options.witness is not None:
            witness = await Witness.check(options, rows.identity, lambda _: _last(rows))
        space = await _settle_space(rows, embedder, reembed, on_progress)
        indexer = None
        if index is not None:
            indexer = Indexer(rows, _index(index, rows, options), space, on_progress)
    except BaseException:
        await rows.close()
        raise
    if rows.notice and not scratch:
        log.warning("%s: %s", scheme_of(url), rows.notice)
    return Recall(
        rows,
        embedder,
        space,
        llm,
        indexer=indexer,
        conversations=conversations,
        witness=witness,
        exact_rows_max=exact_rows_max,
    )


async def _last(rows: Rows) -> int:
    return (await rows.totals())[0]


async def _open_rows(url: str, options: Options) -> Rows:
    scheme = scheme_of(url)
    check_address(url)
    if scheme == "sqlite":
        from recollect.recall.rows_sqlite import SqliteRows

        return await SqliteRows.open(url, options)
    if scheme in ("postgresql", "postgres"):
        try:
            from recollect.recall.rows_postgres import PostgresRows
        except ImportError as error:
            raise MissingExtra(f"{scheme}:// needs a driver: pip install 'recollect[postgres]'") from error
        return await PostgresRows.open(url, options)
    raise CannotOpen(
        "long-term memory is kept in sqlite:///file.db or postgresql://host/db, "
        f"not in {f'{scheme}://' if scheme else 'an address without a scheme'}"
    )


INDEXES = (
    "chroma",
    "http",
    "https",
    "chroma+http",
    "chroma+https",
    "pgvector",
    "postgresql",
    "postgres",
)


def check_index(url: str) -> None:
    """Refuses an address at which there can be no vector index."""
    check_address(url)
    if scheme_of(url) not in INDEXES:
        kind = (
            f"{scheme_of(url)!r} is not a vector index"
            if scheme_of(url)
            else "the index's address has no scheme"
        )
        raise CannotOpen(f"{kind}; use chroma:///folder, http://host:port or pgvector://…")


def _index(url: str, rows: Rows, options: Options) -> VectorIndex:
    check_index(url)
    parts = urlsplit(url)
    if parts.scheme == "chroma":
        from recollect.recall.chroma import ChromaFolderIndex

        folder = unquote(parts.path[1:])
        if parts.netloc or not folder:
            raise CannotOpen(f"{shown(url)}: write chroma:///relative/folder or chroma:////absolute/folder")
        return ChromaFolderIndex(Path(folder).absolute(), _threshold(url), options.file_mode)
    if parts.scheme in ("http", "https", "chroma+http", "chroma+https"):
        from recollect.recall.chroma_server import ChromaServerIndex

        address = url.removeprefix("chroma+").partition("?")[0]
        return ChromaServerIndex(address, rows.identity, options.timeout_s, _threshold(url))
    try:
        from recollect.recall.pgvector import PgVectorIndex
    except ImportError as error:
        raise MissingExtra("pgvector needs a driver: pip install 'recollect[postgres]'") from error
    address = f"postgresql{url[len(parts.scheme) :]}"
    return PgVectorIndex(address, options.timeout_s)


def _threshold(url: str) -> int:
    threshold = parse_qs(urlsplit(url).query).get("sync_threshold", [str(SYNC_THRESHOLD)])[0]
    if not threshold.isdigit() or int(threshold) < 10:
        raise CannotOpen(f"{shown(url)}: sync_threshold is a number of at least 10")
    return int(threshold)


async def _settle_space(
    rows: Rows, embedder: Embedder, reembed: bool, on_progress: Callable[[Progress], None] | None
) -> Space:
    """The memory's space, which must be the embedder's; if not, refused or re-embedded, never mixed."""
    found = await rows.space(embedder.name, embedder.dimension)
    if (found.name, found.dimension) != (embedder.name, embedder.dimension):
        if not reembed:
            raise EmbedderChanged(
                f"this memory was embedded by {found.name!r} ({found.dimension} numbers), not by {embedder.name!r} "
                f"({embedder.dimension}). Open it with that one, or with reembed=True to embed all of it again"
            )
        found = Space(found.number + 1, embedder.name, embedder.dimension)
        await rows.move(found)
    await _embed_strays(rows, embedder, found, on_progress)
    return found


async def _embed_strays(
    rows: Rows, embedder: Embedder, space: Space, on_progress: Callable[[Progress], None] | None
) -> None:
    """Rows that a re-embedding has not reached yet, because it is starting or was interrupted."""
    total = None
    while batch := await rows.strays(space.number, REEMBEDDED_AT_ONCE):
        texts = [memory_of(row.sequence, row.record).text for row in batch]
        vectors = await embedder.embed(texts)
        if len(vectors) != len(batch):
            raise RecollectError(f"{embedder.name} gave {len(vectors)} vectors for {len(batch)} texts")
        await rows.restate(
            [(row.sequence, vector.tobytes()) for row, vector in zip(batch, vectors, strict=True)],
            space.number,
        )
        if on_progress is not None:
            total = total or (await rows.totals())[0]
            on_progress(Progress(batch[-1].sequence, total, "embedding anew"))
