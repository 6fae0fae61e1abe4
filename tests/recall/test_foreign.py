"""Tables, collections and folders that are only called like ours stay as they are, and memory works without them."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from recollect.recall.chroma_folder import Slot
from recollect.verify.engines import Engine
from tests.providers import foreign
from tests.recall.conftest import Place, place_of

FACTS = ["The user plays drums.", "The user's sister lives in Porto."]
COLLECTIONS = "/api/v2/tenants/default_tenant/databases/default_database/collections"


async def rebuild(place: Place) -> None:
    """Everything that an index does in its life; at the end of each it is emptied, and so replaced in the next."""
    for _ in range(2):
        async with place.open() as recall:
            await recall.add("u", FACTS)
            await recall.index_ready()
            assert recall._indexer is not None
            await recall._indexer._index.reset(recall._indexer._marker(0))


async def collections(url: str) -> dict[str, Any]:
    """All collections with all that is in them."""
    async with httpx.AsyncClient(base_url=url) as client:
        found = {}
        for item in (await client.get(f"{COLLECTIONS}?limit=1000")).json():
            everything = {"include": ["embeddings", "metadatas", "documents"]}
            held = (await client.post(f"{COLLECTIONS}/{item['id']}/get", json=everything)).json()
            found[item["name"]] = (item["id"], item["metadata"], held)
        return found


async def test_collections_of_others_stay(engine_of: Callable[[str], Engine], tmp_path: Path) -> None:
    place = await place_of("sqlite+chroma-server", engine_of, tmp_path)
    assert place.index is not None
    others = await collections(place.index)  # the server is shared with other tests
    await rebuild(place)
    (ours,) = (await collections(place.index)).keys() - others.keys()
    prefix = ours.rpartition("-")[0].rpartition("-")[0]
    told: list[tuple[str, dict[str, str] | None]] = [
        (f"{prefix}-99999999-customers", None),
        (f"{prefix}-99999999-deadbeef", {"note": "the customers'"}),
        (f"{prefix}-99999999-c0ffee00", {"recollect-index": ours}),  # a copy, with its metadata
        (f"{prefix}-00000000-notes", {"recollect-index": ""}),
        ("recall-customers", None),
    ]
    async with httpx.AsyncClient(base_url=place.index) as client:
        for name, metadata in told:
            made = await client.post(COLLECTIONS, json={"name": name, "metadata": metadata})
            items = {"ids": ["1"], "embeddings": [[0.5, 0.5]], "documents": ["precious"]}
            await client.post(f"{COLLECTIONS}/{made.json()['id']}/add", json=items)
        names = {name for name, _ in told}
        before = await collections(place.index)
        await rebuild(place)
        after = await collections(place.index)
        assert {name: after.get(name) for name in names} == {name: before[name] for name in names}
        assert {name for name in before if name not in after} == {ours}, "replaced, and nothing else"
        for name in names:
            await client.delete(f"{COLLECTIONS}/{name}")


def tables(engine: Any, place: Place) -> dict[str, Any]:
    """All tables of the place's schema, with their rows."""
    found: dict[str, Any] = foreign.postgres(engine.address)["postgres"]
    schema = f'"{place.rows.rpartition("=")[2]}".'
    return {name: rows for name, rows in found.items() if name.startswith(schema)}


@pytest.mark.parametrize(
    "comment", ["", "the customers' vectors", "recollect: a vector index, made as table 1"]
)
async def test_a_table_of_somebody_else_is_left_alone_and_named(
    comment: str, engine_of: Callable[[str], Engine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = await place_of("postgres+pgvector", engine_of, tmp_path)
    connection = await asyncpg.connect(place.rows)
    await connection.execute(
        "CREATE TABLE recall_index_vectors AS SELECT generate_series(1, 100) AS precious"
    )
    await connection.execute(
        f"COMMENT ON TABLE recall_index_vectors IS '{comment.replace(chr(39), chr(39) * 2)}'"
    )
    before = tables(engine_of("postgres"), place)
    assert before
    async with place.open() as recall:
        await recall.add("u", FACTS)
        assert (await recall.search("u", "drums", k=1)).hits[0].memory.text == FACTS[0]
        async with asyncio.timeout(10):
            while "was not made by this release of recollect" not in caplog.text:
                await asyncio.sleep(0.01)
    after = tables(engine_of("postgres"), place)
    assert {name: after.get(name) for name in before} == before
    await connection.close()


async def test_an_index_further_down_the_search_path_is_somebody_else_s(
    engine_of: Callable[[str], Engine], tmp_path: Path
) -> None:
    theirs = await place_of("postgres+pgvector", engine_of, tmp_path)
    await rebuild(theirs)
    before = tables(engine_of("postgres"), theirs)
    assert len(before) > 2
    schema = theirs.rows.rpartition("=")[2]
    ours = await place_of("postgres+pgvector", engine_of, tmp_path)
    await rebuild(Place(ours.kind, ours.rows, f"{ours.index},{schema}"))
    assert tables(engine_of("postgres"), theirs) == before


@given(st.from_regex(r"[0-9a-f-]{1,20}", fullmatch=True), st.one_of(st.none(), st.text(max_size=50)))
@example("20240101-backup", None)
@example("00000001-deadbeef", '{"flushing": false, "files": {}}')
@example("00000001-deadbeef", '{"generation": "00000002-deadbeef"}')
@example("00000001-deadbeef", "[]")
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_folders_of_others_in_the_index_stay(tmp_path: Path, name: str, state: str | None) -> None:
    index = tmp_path / "index"
    theirs = index / "slot-0" / name
    theirs.mkdir(parents=True)
    try:
        (theirs / "precious").write_text("precious")
        if state is not None:
            (theirs / "state.json").write_text(state)
        slot = Slot.take(index)
        try:
            before = foreign.folder(theirs)
            assert slot.newest() is None
            first, second = slot.fresh(), slot.fresh()
            slot.discard_others(second)
            assert not first.path.exists()
            assert foreign.folder(theirs) == before
        finally:
            slot.release()
    finally:
        shutil.rmtree(index)
