"""What was erased from long-term memory is in no file of its rows or its index, except where the report says."""

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recollect import Erasure, OutcomeUnknown
from recollect.recall import open_recall
from recollect.recall.chroma_folder import Slot
from recollect.recall.embedding import HashingEmbedder
from recollect.recall.memory import user_key
from recollect.verify.engines import Engine
from tests.recall.conftest import Place, place_of

TEXT = "canary-text-8d20fe likes to be forgotten"


@pytest.fixture(params=["sqlite", "sqlite+chroma-folder", "sqlite+chroma-server", "postgres+pgvector"])
async def kept(
    request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path
) -> tuple[Place, list[Path]]:
    """A place, and the folders with all of its files."""
    place = await place_of(request.param, engine_of, tmp_path)
    folders = [tmp_path]
    for name in ("postgres", "chroma"):
        if name in request.param and "folder" not in request.param:
            data = engine_of(name).data
            assert data is not None
            folders.append(data)
    return place, folders


async def canaries() -> dict[str, bytes]:
    [vector] = await HashingEmbedder().embed([TEXT])
    raw = array("f", vector).tobytes()
    place = next(at for at in range(0, len(raw), 4) if any(raw[at : at + 4]))
    around = raw[max(0, place - 8) : place + 16]
    return {"text": TEXT.encode(), "vector": around, "vector, high byte first": swapped(around)}


def swapped(raw: bytes) -> bytes:
    """As PostgreSQL sends floats."""
    floats = array("f", raw)
    floats.byteswap()
    return floats.tobytes()


def found_in(folders: list[Path], sought: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            try:
                content = path.read_bytes()
            except (FileNotFoundError, IsADirectoryError):  # a journal comes and goes with each transaction
                continue
            yield from ((str(path), what) for what, canary in sought.items() if canary in content)


async def test_what_is_erased_is_in_no_file_but_those_the_report_names(
    kept: tuple[Place, list[Path]],
) -> None:
    place, folders = kept
    sought = await canaries()
    async with place.open() as recall:
        await recall.add("bob", ["plays the piano", "has a daughter"])
        await recall.add("alice", [TEXT])
        await recall.index_ready()
        assert {what for _, what in found_in(folders, sought)} >= {"text"}, (
            "the search must be able to find it"
        )
        if "chroma" in place.kind:
            assert {what for _, what in found_in(folders, sought)} >= {"vector"}
        report = await recall.erase("alice")
        left = {path for path, _ in found_in(folders, sought)}
        named = [each.where for each in report.unreached]
        excused = {path for path in left if "pg_wal" in path and "pg_wal" in named}
        excused |= {path for path in left if "chroma" in path and "the Chroma server's files" in named}
        excused |= {path for path in left if path.endswith("data_level0.bin") and "data_level0.bin" in named}
        assert left == excused, report
        assert await recall.memories("alice") == []
        assert {hit.memory.text for hit in (await recall.search("bob", "piano")).hits} >= {"plays the piano"}
        assert (await recall.search("alice", TEXT)).hits == []
    assert isinstance(report, Erasure)
    assert report.session == "alice"


async def test_slots_that_no_process_holds_are_emptied_and_those_in_use_are_named(tmp_path: Path) -> None:
    rows, index = f"sqlite:///{tmp_path}/memory.db", f"chroma:///{tmp_path}/index"
    sought = await canaries()
    async with open_recall(rows, index=index) as first:
        await first.add("alice", [TEXT])
        await first.index_ready()
        async with open_recall(rows, index=index) as second:
            await second.index_ready()
        # The second one's slot is free now, with the vector in its files; the third one's is in use.
        held = Slot.take(tmp_path / "index")
        other = Slot(tmp_path / "index" / "slot-2", -1, None)
        async with open_recall(rows, index=index) as third:
            await third.index_ready()
            held.release()
            report = await first.erase("alice")
            named = [each.where for each in report.unreached]
            assert str(other.path) in named
            left = {path for path, _ in found_in([tmp_path], sought)}
            assert [path for path in left if not any(where in path for where in named)] == []
    assert user_key("alice").hex() not in "".join(str(path) for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["sqlite", "postgres+pgvector"])
async def test_what_fails_after_the_user_is_forgotten_is_no_refusal(
    name: str, engine_of: Callable[[str], Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`NotWritten` would say that the memories are still there."""
    place = await place_of(name, engine_of, tmp_path)
    async with place.open() as recall:
        await recall.add("alice", [TEXT])
        erases = recall.rows.erase

        async def of_closed_rows() -> object:
            await recall.rows.close()
            return await erases()

        monkeypatch.setattr(recall.rows, "erase", of_closed_rows)
        with pytest.raises(OutcomeUnknown, match=r"closed.*; erase again$"):
            await recall.erase("alice")


async def test_an_index_that_cannot_be_built_anew_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_recall(f"sqlite:///{tmp_path}/memory.db", index=f"chroma:///{tmp_path}/index") as recall:
        await recall.add("alice", [TEXT])
        await recall.index_ready()

        def fail(slot: Slot) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Slot, "fresh", fail)
        report = await recall.erase("alice")
        assert any("could not be rebuilt" in each.why for each in report.unreached)
        monkeypatch.undo()
        again = await recall.erase("alice")
        assert not any("could not be rebuilt" in each.why for each in again.unreached)
        named = [each.where for each in again.unreached]
        left = {path for path, _ in found_in([tmp_path], await canaries())}
        assert [path for path in left if not any(where in path for where in named)] == []
