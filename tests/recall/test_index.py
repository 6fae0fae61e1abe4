"""An index that is behind, torn, gone or lying is noticed and rebuilt, and searches are right meanwhile."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import asyncpg
import httpx
import pytest

from recollect import StoreReplaced
from recollect.erasure import Unreached
from recollect.recall import IndexBroken, IndexState, Progress, Recall, open_recall
from recollect.recall.chroma_folder import Generation
from recollect.recall.comparing import nearest
from recollect.recall.index import IndexMarker, Near
from recollect.recall.indexing import Indexer
from recollect.recall.memory import user_key
from recollect.recall.rows import Change
from recollect.verify.engines import Engine
from tests.recall.conftest import Place, place_of

FACTS = [f"The user's token{n} is {n * 3}." for n in range(40)]
OUT_OF_REACH_MAX = 4
INDEXED = ("sqlite+chroma-folder", "sqlite+chroma-server", "postgres+pgvector")


async def fill(place: Place) -> None:
    """Puts all of FACTS into the rows and the index, and closes both in good order."""
    async with place.open() as recall:
        await recall.add("u", FACTS)
        await recall.index_ready()


@pytest.fixture(params=INDEXED)
async def indexed(
    request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path
) -> Place:
    """A place whose index has all of FACTS."""
    place = await place_of(request.param, engine_of, tmp_path)
    await fill(place)
    return place


async def all_found(recall: Recall) -> str:
    """Asserts that every fact is found by its own words, but for a few that an index may leave out of reach; how it was
    searched."""
    methods = set()
    missed = []
    for fact in FACTS:
        found = await recall.search("u", fact, k=3)
        methods.add(found.method)
        if fact not in [hit.memory.text for hit in found.hits]:
            assert found.method == "index"
            missed.append(fact)
    assert len(missed) <= OUT_OF_REACH_MAX, missed
    return "+".join(sorted(methods))


async def assert_rebuilt(recall: Recall) -> None:
    await recall.index_ready()
    assert recall.rebuilds == 1
    assert await all_found(recall) == "index"


async def test_an_index_in_good_order_is_used_as_it_is(indexed: Place) -> None:
    async with indexed.open() as recall:
        await recall.index_ready()
        assert await all_found(recall) == "index"
        assert recall.rebuilds == 0


async def test_a_user_s_few_memories_are_compared_one_by_one(indexed: Place) -> None:
    async with indexed.open(exact_rows_max=40) as recall:
        await recall.index_ready()
        assert await all_found(recall) == "scan"
        await recall.add("u", ["The user's sibling plays drums."])
        assert (await recall.search("u", "token1", k=3)).method == "index"


async def test_an_index_that_is_behind_catches_up(indexed: Place) -> None:
    async with open_recall(indexed.rows) as without_index:
        await without_index.add("u", ["The user's sibling plays drums."])
        first = (await without_index.memories("u", limit=100))[-1]
        await without_index.forget("u", first.sequence)
    async with indexed.open() as recall:
        await recall.index_ready()
        assert recall.rebuilds == 0
        found = await recall.search("u", "sibling drums", k=1)
        assert (found.method, found.hits[0].memory.text) == ("index", "The user's sibling plays drums.")
        assert FACTS[0] not in [hit.memory.text for hit in (await recall.search("u", "token0", 5)).hits]


def generation_in(tmp_path: Path) -> Path:
    (generation,) = (tmp_path / "index" / "slot-0").glob("0*")
    return generation


async def damage(place: Place, tmp_path: Path) -> None:
    """Takes vectors out of the index, and leaves everything else as it was."""
    if place.kind == "sqlite+chroma-folder":
        with closing(sqlite3.connect(generation_in(tmp_path) / "chroma.sqlite3")) as file, file:
            file.execute("DELETE FROM embeddings WHERE embedding_id IN ('3', '4')")
    elif place.kind == "sqlite+chroma-server":
        base = f"{place.index}/api/v2/tenants/default_tenant/databases/default_database/collections"
        async with httpx.AsyncClient() as client:
            identity = await _identity(place)
            ours = [c for c in (await client.get(base)).json() if identity in c["name"]]
            answer = await client.post(f"{base}/{ours[-1]['id']}/delete", json={"ids": ["3", "4"]})
            assert answer.status_code == 200
    else:
        connection = await asyncpg.connect(place.rows)
        await connection.execute("DELETE FROM recall_index_vectors WHERE sequence IN (3, 4)")
        await connection.close()


async def _identity(place: Place) -> str:
    async with open_recall(place.rows) as recall:
        return recall.rows.identity


async def test_an_index_with_vectors_missing_is_rebuilt(indexed: Place, tmp_path: Path) -> None:
    await damage(indexed, tmp_path)
    seen: list[Progress] = []
    async with indexed.open(on_progress=seen.append) as recall:
        assert "scan" in await all_found(recall) or recall.index_state is IndexState.READY
        await assert_rebuilt(recall)
    assert (seen[-1].done, seen[-1].total) == (40, 40)


async def remove(place: Place, tmp_path: Path) -> None:
    if place.kind == "sqlite+chroma-folder":
        shutil.rmtree(tmp_path / "index")
    elif place.kind == "sqlite+chroma-server":
        base = f"{place.index}/api/v2/tenants/default_tenant/databases/default_database/collections"
        identity = await _identity(place)
        async with httpx.AsyncClient() as client:
            for collection in (await client.get(base)).json():
                if identity in collection["name"]:
                    await client.delete(f"{base}/{collection['name']}")
    else:
        connection = await asyncpg.connect(place.rows)
        await connection.execute("DROP TABLE recall_index_vectors, recall_index_marker")
        await connection.close()


async def test_an_index_that_is_gone_is_rebuilt(indexed: Place, tmp_path: Path) -> None:
    await remove(indexed, tmp_path)
    async with indexed.open() as recall:
        await assert_rebuilt(recall)


async def test_an_index_that_goes_while_it_is_used_is_rebuilt(indexed: Place, tmp_path: Path) -> None:
    async with indexed.open() as recall:
        await recall.index_ready()
        await remove(indexed, tmp_path)
        await all_found(recall)
        await assert_rebuilt(recall)


@pytest.fixture
async def flushed(engine_of: Callable[[str], Engine], tmp_path: Path) -> tuple[Place, Path]:
    """A place whose index is a folder, and the generation in it that has all of FACTS in its vector files."""
    place = await place_of("sqlite+chroma-folder", engine_of, tmp_path)
    assert place.index is not None
    place.index += "?sync_threshold=20"
    await fill(place)
    return place, generation_in(tmp_path)


@pytest.mark.parametrize("harm", ["flushing", "touched", "truncated", "no-state"])
async def test_a_folder_in_doubt_is_not_even_loaded(harm: str, flushed: tuple[Place, Path]) -> None:
    place, generation = flushed
    files = sorted(generation.glob("*/*.bin"))
    assert files, "the vectors were never flushed"
    state = generation / "state.json"
    if harm == "flushing":
        state.write_text(json.dumps({**json.loads(state.read_text()), "flushing": True}))
    elif harm == "touched":
        files[0].touch()
    elif harm == "truncated":
        with files[0].open("r+b") as file:
            file.truncate(10)
    else:
        state.unlink()
    async with place.open() as recall:
        await assert_rebuilt(recall)
    known_as_ours = harm != "no-state"
    assert generation.exists() is not known_as_ours, "what is in doubt is removed, if it is ours for certain"


async def test_torn_vector_files_are_noticed_by_what_they_hold(flushed: tuple[Place, Path]) -> None:
    """The folder says that all is well, Chroma's count is right and its searches raise nothing."""
    place, generation = flushed
    (torn,) = generation.glob("*/index_metadata.pickle")
    torn.unlink()
    Generation(generation)._write_state(flushing=False)
    async with place.open() as recall:
        await assert_rebuilt(recall)


async def test_an_index_of_other_rows_is_not_believed(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    place = await place_of("sqlite+chroma-folder", engine_of, tmp_path)
    await fill(place)
    for name in ("memory.db", "memory.db-wal", "memory.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    async with place.open() as recall:
        await recall.index_ready()
        assert (await recall.search("u", "token1")).hits == []


async def test_rows_replaced_are_noticed_by_the_witness(tmp_path: Path) -> None:
    url, witness = f"sqlite:///{tmp_path}/memory.db", tmp_path / "witness.json"
    async with open_recall(url, witness=witness) as recall:
        await recall.add("u", FACTS)
    async with open_recall(url, witness=witness) as recall:
        assert len(await recall.memories("u")) == 40
    for file in tmp_path.glob("memory.db*"):
        file.unlink()
    with pytest.raises(StoreReplaced):
        await open_recall(url, witness=witness)


class Liar:
    """An index that does as it is told in the test."""

    name = "liar"

    def __init__(self) -> None:
        self.kept: dict[int, tuple[bytes, bytes]] = {}
        self.marker: IndexMarker | None = None
        self.hides: set[int] = set()
        """Lost: neither found nor there."""
        self.out_of_reach: set[int] = set()
        """There, and not found, as an approximate index may have it."""
        self.bad_graph: set[int] = set()
        """Out of reach whenever it is built."""
        self.invents: list[Near] = []
        self.fails = False

    async def open(self) -> IndexMarker | None:
        self._check()
        return self.marker

    async def reset(self, marker: IndexMarker) -> None:
        self._check()
        self.kept.clear()
        self.hides.clear()
        self.invents.clear()
        self.out_of_reach = set(self.bad_graph)
        self.marker = marker

    async def apply(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        self._check()
        for change in changes:
            if change.user is not None and change.vector is not None:
                self.kept[change.sequence] = (change.user, change.vector)
            else:
                self.kept.pop(change.sequence, None)
        self.marker = marker

    async def complete(self) -> None:
        self._check()

    def erased(self) -> tuple[list[str], list[Unreached]]:
        return [], []

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]:
        self._check()
        rows = [
            (n, v) for n, (u, v) in self.kept.items() if u == user and n not in self.hides | self.out_of_reach
        ]
        found = sorted(nearest(vector, rows, min(k, len(rows) or 1)), key=lambda near: -near.score)
        return [*self.invents, *found][:k]

    async def vectors(self, sequences: Sequence[int]) -> dict[int, bytes]:
        self._check()
        return {n: self.kept[n][1] for n in sequences if n in self.kept and n not in self.hides}

    async def count(self) -> int:
        self._check()
        return len(self.kept)

    async def close(self) -> None:
        return

    def _check(self) -> None:
        if self.fails:
            raise IndexBroken("the liar is down")


async def with_liar(tmp_path: Path, count: int = 40) -> tuple[Recall, Liar]:
    recall = await open_recall(f"sqlite:///{tmp_path}/memory.db", exact_rows_max=0)
    await recall.add("u", FACTS[:count])
    await recall.add("other", ["The user's token1 is a secret."])
    liar = Liar()
    recall._indexer = Indexer(recall.rows, liar, recall._space)
    await recall.index_ready()
    return recall, liar


async def test_too_few_hits_are_completed_from_the_rows(tmp_path: Path) -> None:
    recall, liar = await with_liar(tmp_path, 3)
    liar.hides = {2}
    found = await recall.search("u", "token1", k=3)
    assert {hit.memory.text for hit in found.hits} == set(FACTS[:3])
    assert found.method == "scan"
    await recall.index_ready()
    assert recall.rebuilds == 2  # the first one was building it
    assert (await recall.search("u", "token1", k=3)).method == "index"
    await recall.close()


async def test_hits_that_are_not_the_user_s_do_not_come_back(tmp_path: Path) -> None:
    recall, liar = await with_liar(tmp_path)
    stranger = (await recall.rows.newest(user_key("other"), None, 1))[0].sequence
    for invented in ([stranger], [999_999], [stranger, 999_999]):
        liar.invents = [Near(sequence, 1.0) for sequence in invented]
        found = await recall.search("u", "token1", k=3)
        assert FACTS[1] in [hit.memory.text for hit in found.hits]
        assert "secret" not in " ".join(hit.memory.text for hit in found.hits)
        assert len(found.hits) == 3
        await recall.index_ready()
    await recall.close()


async def test_hidden_rows_are_found_by_probes(tmp_path: Path) -> None:
    recall, liar = await with_liar(tmp_path)
    liar.hides = set(range(2, 41, 2))
    for _ in range(64 * 20):
        await recall.search("u", "token1", k=1)
        if recall.rebuilds > 1:
            break
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        while recall.rebuilds < 2:
            await recall.search("u", "token1", k=1)
            await asyncio.sleep(0.01)
    await recall.close()


async def probed(recall: Recall) -> None:
    """Searches until the index has been probed again."""
    indexer = recall._indexer
    assert indexer is not None
    async with asyncio.timeout(20):
        while indexer._searches < 64:
            await recall.search("u", "token1", k=1)
        while indexer._searches >= 64:
            await asyncio.sleep(0.001)


async def test_rows_out_of_reach_are_no_damage(tmp_path: Path) -> None:
    recall, liar = await with_liar(tmp_path)
    liar.out_of_reach = {2, 7, 11, 30}
    for _ in range(20):
        found = await recall.search("u", "token1", k=40)
        assert ({hit.memory.text for hit in found.hits}, found.method) == (set(FACTS), "scan")
        await probed(recall)
        assert recall.index_state is IndexState.READY
    assert recall.rebuilds == 1
    await recall.close()


async def test_a_graph_that_leads_nowhere_is_rebuilt(tmp_path: Path) -> None:
    recall, liar = await with_liar(tmp_path)
    liar.out_of_reach = set(range(1, 41))
    for _ in range(20):
        await probed(recall)
        if not liar.out_of_reach:
            break
    await recall.index_ready()
    assert recall.rebuilds == 2
    await recall.close()


async def test_what_the_data_gives_is_not_rebuilt_again(tmp_path: Path) -> None:
    """Most rows are out of reach in every index of this engine: that is noticed once, not for ever."""
    recall, liar = await with_liar(tmp_path)
    liar.bad_graph = set(range(1, 37))
    liar.out_of_reach = liar.bad_graph
    for _ in range(20):
        await probed(recall)
        await recall.index_ready()
    assert recall.rebuilds <= 2
    assert (await recall.search("u", "token1", k=40)).method == "scan"
    assert recall.index_state is IndexState.READY
    await recall.close()


async def test_an_index_that_is_down_is_waited_for(tmp_path: Path) -> None:
    recall, liar = await with_liar(tmp_path)
    liar.fails = True
    assert await all_found(recall) == "scan"
    await recall.add("u", ["The user's sibling plays drums."])
    found = await recall.search("u", "sibling drums", k=1)
    assert (found.method, found.index) == ("scan", IndexState.DOWN)
    liar.fails = False
    async with asyncio.timeout(30):
        await recall.index_ready()
    assert await all_found(recall) == "index"
    await recall.close()


async def test_closing_during_a_rebuild_leaves_nothing_running(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with open_recall(url) as recall:
        for _ in range(10):
            await recall.add("u", FACTS * 20)
    before = asyncio.all_tasks()
    async with open_recall(url, index=f"chroma:///{tmp_path}/index") as recall:
        assert len((await recall.search("u", "token1", 3)).hits) == 3
    assert asyncio.all_tasks() == before
