"""Recall beside direct use of chromadb and pgvector, in one run: `python bench/recall.py`.

Both sides embed with the same embedder, keep the same texts for the same users, and acknowledge a write when it is
fsynced. They take turns, operation by operation, so that the machine's moods meet both. Direct use is what an
application writes when it does without us: one collection or table, a filter on the user, the nearest five.

`remember` is measured twice: until it is acknowledged, and including the index's catching up afterwards, because the
work that ours puts off has to be done as well. Limits: search 1.3 ×, remember 1.5 × (of the second figure). A search's
ratio is that of the two that stood side by side, the median over all pairs: a machine that others use, too, slows down
both of a pair.

The rebuild runs in a process of its own, which does nothing else: what it grows by is what a rebuild takes.
Nothing fails on a number; the last lines say what was reached.
"""

import argparse
import asyncio
import gc
import json
import logging
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import psutil

from recollect import Message
from recollect.recall import HashingEmbedder, Progress, Recall, open_recall
from recollect.verify import engines

DURATION = """1,000 and 10,000 memories take two to five minutes on two cores. 100,000 take half an hour and more, most
of it loading: direct use of Chroma rewrites its vector files after each thousand. Leave them out with --sizes."""
PER_USER = 1_000
"""Memories of one user, unless told otherwise."""
LOAD_AT_ONCE = 5_000
WRITES, SEARCHES = 1_000, 150
"""Chroma rewrites its vector files once in a thousand writes: so each side has it once, wherever it stands."""
WRITES_AT_ONCE = 20
SEARCH_LIMIT, REMEMBER_LIMIT = 1.3, 1.5
WORDS = [f"{a}{b}" for a in "river stone cloud amber maple copper violet harbor".split() for b in range(40)]  # noqa: SIM905


def fact(number: int) -> str:
    chosen = random.Random(number)
    return (
        f"The user's {chosen.choice(WORDS)} is {chosen.choice(WORDS)} near {chosen.choice(WORDS)} {number}."
    )


def user_of(number: int) -> str:
    return f"user {number // options.per_user}"


class Side(Protocol):
    async def load(self, first: int, count: int) -> None: ...
    async def remember(self, user: str, text: str) -> None: ...
    async def settle(self) -> None: ...
    async def search(self, user: str, query: str) -> list[str]: ...
    async def close(self) -> None: ...


class DirectChroma:
    """As in Chroma's own documentation; its calls run in a thread, as any asynchronous service has to."""

    def __init__(self, folder: Path) -> None:
        import chromadb
        from chromadb.config import Settings

        client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
        self._collection: Any = client.create_collection(
            "direct", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
        self._embedder = HashingEmbedder()
        self._count = 0

    def _add(self, users: Sequence[str], texts: Sequence[str]) -> None:
        first, self._count = self._count, self._count + len(texts)
        self._collection.add(
            ids=[str(first + n) for n in range(len(texts))],
            documents=list(texts),
            embeddings=[list(self._embedder.vector(text)) for text in texts],
            metadatas=[{"user": user} for user in users],
        )

    def _query(self, user: str, query: str) -> list[str]:
        found = self._collection.query(
            query_embeddings=[list(self._embedder.vector(query))],
            n_results=5,
            where={"user": user},
            include=["documents", "distances"],
        )
        return list(found["documents"][0])

    async def load(self, first: int, count: int) -> None:
        numbers = range(first, first + count)
        await asyncio.to_thread(self._add, [user_of(n) for n in numbers], [fact(n) for n in numbers])

    async def remember(self, user: str, text: str) -> None:
        await asyncio.to_thread(self._add, [user], [text])

    async def settle(self) -> None:
        return

    async def search(self, user: str, query: str) -> list[str]:
        return await asyncio.to_thread(self._query, user, query)

    async def close(self) -> None:
        self._collection = None


class DirectPgvector:
    """A table with a vector, an HNSW index, and an index on the user."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._embedder = HashingEmbedder()

    @classmethod
    async def open(cls, url: str) -> "DirectPgvector":
        connection = await asyncpg.connect(url)
        await connection.execute(
            "CREATE EXTENSION IF NOT EXISTS vector; DROP TABLE IF EXISTS direct;"
            f"CREATE TABLE direct (id bigserial PRIMARY KEY, owner text, content text, embedding vector({512}));"
            "CREATE INDEX ON direct (owner); SET hnsw.iterative_scan = strict_order"
        )
        # As pgvector's own Python package does it: the parameter is a vector, not text that is cast row by row.
        await connection.set_type_codec("vector", encoder=str, decoder=str, schema="public", format="text")
        return cls(connection)

    def _text(self, text: str) -> str:
        return f"[{','.join(format(value, '.8g') for value in self._embedder.vector(text))}]"

    async def load(self, first: int, count: int) -> None:
        numbers = range(first, first + count)
        await self._connection.executemany(
            "INSERT INTO direct (owner, content, embedding) VALUES ($1, $2, $3)",
            [(user_of(n), fact(n), self._text(fact(n))) for n in numbers],
        )

    async def settle(self) -> None:
        await self._connection.execute(
            "SET maintenance_work_mem = '256MB';"
            "CREATE INDEX IF NOT EXISTS direct_hnsw ON direct USING hnsw (embedding vector_cosine_ops)",
            timeout=3600,
        )

    async def remember(self, user: str, text: str) -> None:
        await self._connection.execute(
            "INSERT INTO direct (owner, content, embedding) VALUES ($1, $2, $3)",
            user,
            text,
            self._text(text),
        )

    async def search(self, user: str, query: str) -> list[str]:
        rows = await self._connection.fetch(
            "SELECT content, 1 - (embedding <=> $2) FROM direct WHERE owner = $1 "
            "ORDER BY embedding <=> $2 LIMIT 5",
            user,
            self._text(query),
        )
        return [row[0] for row in rows]

    async def close(self) -> None:
        await self._connection.close()


class AsIs:
    """Takes what is said as the fact, so that both sides store the same; the stand-in's rules are not measured."""

    async def complete(self, messages: Sequence[Message]) -> str:
        return messages[-1].text


class Ours:
    def __init__(self, recall: Recall) -> None:
        self.recall = recall

    async def load(self, first: int, count: int) -> None:
        numbers = range(first, first + count)
        users = sorted({user_of(n) for n in numbers})
        for user in users:
            await self.recall.add(user, [fact(n) for n in numbers if user_of(n) == user])

    async def remember(self, user: str, text: str) -> None:
        await self.recall.remember(user, [Message("user", text)])

    async def settle(self) -> None:
        await self.recall.index_ready()

    async def search(self, user: str, query: str) -> list[str]:
        found = await self.recall.search(user, query, 5)
        assert found.method == "index", found.index
        return [hit.memory.text for hit in found.hits]

    async def close(self) -> None:
        await self.recall.close()


@dataclass
class Figures:
    index: str
    memories: int
    search_direct_ms: float
    search_ours_ms: float
    search_ratio: float
    remember_direct_ms: float
    remember_ours_ms: float
    remember_ours_settled_ms: float
    same_first_hit: float
    """Share of searches in which both found the same first."""

    @property
    def remember_ratio(self) -> float:
        return self.remember_ours_settled_ms / self.remember_direct_ms


async def timed(work: Awaitable[Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = await work
    return (time.perf_counter() - started) * 1000, answer


async def fill(side: Side, size: int) -> None:
    for first in range(0, size, LOAD_AT_ONCE):
        await side.load(first, min(LOAD_AT_ONCE, size - first))
    await side.settle()


async def compare(name: str, size: int, direct: Side, ours: Side) -> Figures:
    for label, side in (("direct use", direct), ("ours", ours)):
        took, _ = await timed(fill(side, size))
        print(f"{name:9} {size:>7}  loaded into {label} in {took / 1000:.0f} s", file=sys.stderr, flush=True)
    gc.collect()
    picks = [random.Random(n).randrange(size) for n in range(SEARCHES)]
    for pick in picks[:10]:
        await direct.search(user_of(pick), fact(pick))
        await ours.search(user_of(pick), fact(pick))
    times: dict[str, list[float]] = {"direct": [], "ours": []}
    same = 0
    for turn, pick in enumerate(picks):
        first: dict[str, list[str]] = {}
        order = [("direct", direct), ("ours", ours)]
        for label, side in order if turn % 2 else reversed(order):
            took, first[label] = await timed(side.search(user_of(pick), " ".join(fact(pick).split()[2:6])))
            times[label].append(took)
        same += first["direct"][:1] == first["ours"][:1]
    writes: dict[str, list[float]] = {"direct": [], "ours": []}
    settling = 0.0
    for block in range(0, WRITES, WRITES_AT_ONCE):
        for label, side in (("direct", direct), ("ours", ours)):
            for number in range(size + block, size + block + WRITES_AT_ONCE):
                took, _ = await timed(side.remember(user_of(number), fact(number)))
                writes[label].append(took)
            if label == "ours":
                settling += (await timed(side.settle()))[0]
    return Figures(
        name,
        size,
        statistics.median(times["direct"]),
        statistics.median(times["ours"]),
        statistics.median(mine / theirs for theirs, mine in zip(times["direct"], times["ours"], strict=True)),
        statistics.fmean(writes["direct"]),
        statistics.fmean(writes["ours"]),
        statistics.fmean(writes["ours"]) + settling / len(writes["ours"]),
        same / len(picks),
    )


async def chroma_sides(folder: Path) -> tuple[Side, Side]:
    recall = await open_recall(
        f"sqlite:///{folder}/memory.db",
        index=f"chroma:///{folder}/index",
        llm=AsIs(),
        durability="fsynced",
        timeout_s=60,
    )
    return DirectChroma(folder / "direct"), Ours(recall)


async def pgvector_sides(url: str) -> tuple[Side, Side]:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "DROP SCHEMA IF EXISTS ours CASCADE; CREATE EXTENSION IF NOT EXISTS vector; CREATE SCHEMA ours"
    )
    await connection.close()
    own = f"{url}{'&' if '?' in url else '?'}search_path=ours"
    recall = await open_recall(own, index=own, llm=AsIs(), durability="fsynced", timeout_s=60)
    return await DirectPgvector.open(url), Ours(recall)


@dataclass
class Rebuild:
    index: str
    memories: int
    seconds: float
    memory_before_mb: int
    """Resident memory of the process when it begins."""
    memory_mb: list[int]
    """The same at each tenth of the way."""

    @property
    def grew_mb(self) -> int:
        return max(self.memory_mb, default=0) - self.memory_before_mb


async def rebuild_here(name: str, rows: str, index: str) -> Rebuild:
    """Opens memory whose index is gone, and follows this process's memory while the index is rebuilt."""
    process = psutil.Process()
    tenths: dict[int, int] = {}

    def note(progress: Progress) -> None:
        tenth = 10 * progress.done // max(1, progress.total)
        if tenth not in tenths:
            tenths[tenth] = process.memory_info().rss // 1_000_000
            print(f"rebuild {name} {progress.done:>7} of {progress.total}", file=sys.stderr, flush=True)

    started = time.perf_counter()
    recall = await open_recall(rows, index=index, llm=AsIs(), timeout_s=60, on_progress=note)
    before_mb = process.memory_info().rss // 1_000_000
    try:
        await recall.index_ready()
        seconds = time.perf_counter() - started
        count = (await recall.rows.totals())[1]
    finally:
        await recall.close()
    return Rebuild(name, count, round(seconds, 1), before_mb, [tenths[key] for key in sorted(tenths)])


async def rebuild(name: str, rows: str, index: str) -> Rebuild:
    """The same in a process of its own."""
    arguments = [sys.executable, __file__, "--rebuild", name, rows, index]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    answer, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the rebuild into {name} ended with status {process.returncode}")
    return Rebuild(**json.loads(answer))


async def run(sizes: list[int], names: list[str], rebuilds: bool) -> dict[str, Any]:
    figures: list[Figures] = []
    rebuilt: list[Rebuild] = []
    if "chroma" in names:
        for size in sizes:
            with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
                direct, ours = await chroma_sides(Path(folder))
                figures.append(await compare("chroma", size, direct, ours))
                report(figures[-1])
                await direct.close()
                await ours.close()
    if "pgvector" in names:
        engine = engines.create("postgres", provider="wheel")
        endpoint = engine.start()
        url = endpoint.socket_url or endpoint.url
        try:
            for size in sizes:
                direct, ours = await pgvector_sides(url)
                figures.append(await compare("pgvector", size, direct, ours))
                report(figures[-1])
                await direct.close()
                await ours.close()
            if rebuilds:
                rebuilt.append(await rebuild_pgvector(url))
                rebuilt.append(await rebuild_server(url))
                for each in rebuilt:
                    print(
                        f"rebuild {each.index:13} {each.memories:>7} rows {each.seconds:6.1f} s, "
                        f"grew by {each.grew_mb} MB from {each.memory_before_mb}: {each.memory_mb}"
                    )
        finally:
            engine.close()
    return {
        "machine": f"{platform.machine()}, {psutil.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f}",
        "figures": [
            {
                **asdict(each),
                "search_ratio": round(each.search_ratio, 3),
                "remember_ratio": round(each.remember_ratio, 3),
            }
            for each in figures
        ],
        "rebuilds": [asdict(each) for each in rebuilt],
    }


async def rebuild_pgvector(url: str) -> Rebuild:
    own = f"{url}{'&' if '?' in url else '?'}search_path=ours"
    connection = await asyncpg.connect(own)
    await connection.execute("DROP TABLE recall_index_vectors, recall_index_marker")
    await connection.close()
    return await rebuild("pgvector", own, own)


async def rebuild_server(url: str) -> Rebuild:
    """The same rows into a Chroma server, which is another process: what grows here is ours."""
    own = f"{url}{'&' if '?' in url else '?'}search_path=ours"
    engine = engines.create("chroma", "server")
    try:
        return await rebuild("chroma server", own, engine.start().url)
    finally:
        engine.close()


def report(each: Figures) -> None:
    print(
        f"{each.index:9} {each.memories:>7}  search {each.search_direct_ms:6.2f} → {each.search_ours_ms:6.2f} ms "
        f"({each.search_ratio:4.2f} ×)   remember {each.remember_direct_ms:6.2f} → {each.remember_ours_ms:6.2f} ms, "
        f"with the index {each.remember_ours_settled_ms:6.2f} ({each.remember_ratio:4.2f} ×)   "
        f"same first hit {each.same_first_hit:.0%}",
        flush=True,
    )


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=DURATION)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--indexes", default="chroma,pgvector")
    parser.add_argument("--per-user", type=int, default=PER_USER, help=f"memories of each user ({PER_USER})")
    parser.add_argument("--no-rebuild", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--rebuild", nargs=3, metavar=("NAME", "ROWS", "INDEX"), help="only rebuild this index"
    )
    return parser.parse_args(words)


options = parse([])


def main() -> None:
    global options  # what a user's share is, is asked everywhere
    options = parse()
    logging.getLogger("recollect").setLevel(logging.ERROR)
    if options.rebuild:
        print(json.dumps(asdict(asyncio.run(rebuild_here(*options.rebuild)))))
        return
    sizes = [int(size) for size in options.sizes.split(",")]
    result = asyncio.run(run(sizes, options.indexes.split(","), not options.no_rebuild))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    missed = [
        each
        for each in result["figures"]
        if each["search_ratio"] > SEARCH_LIMIT or each["remember_ratio"] > REMEMBER_LIMIT
    ]
    for each in missed:
        print(
            f"missed: {each['index']} at {each['memories']}: {each['search_ratio']} ×, {each['remember_ratio']} ×"
        )
    print(
        f"{result['machine']}; limits {'reached' if not missed else 'missed'}: search 1.3 ×, remember 1.5 ×"
    )


if __name__ == "__main__":
    main()
