"""A saver with a witness notices that its checkpoints were wiped or set back, and is not alarmed by anything else."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from recollect import EngineUnavailable, NotWritten, OutcomeUnknown, StoreReplaced
from recollect.adapters.langgraph import RecollectSaver
from tests.contract.conftest import Place, own_place

__all__ = ["own_place"]

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere" / "witness.json"


def put(saver: RecollectSaver, *, near: bool = True) -> None:
    if not near:
        saver._near_shelf = None
    saver.put(THREAD, empty_checkpoint(), {}, {})


def wipe(place: Place) -> None:
    if place.name == "sqlite":
        path = Path(place.url.removeprefix("sqlite:///"))
        for file in path.parent.glob("memory.db*"):
            file.unlink()
    else:
        place.engine.kill()
        place.engine.wipe()
        place.engine.start()


def test_a_wiped_memory_is_noticed_by_the_saver_that_is_open_and_by_the_next(
    own_place: Place, witness: Path
) -> None:
    with RecollectSaver(own_place.url, witness=witness) as saver:
        put(saver)
        wipe(own_place)
        # The first call may find the end of its connection.
        with suppress(EngineUnavailable, NotWritten, OutcomeUnknown, StoreReplaced):
            put(saver, near=False)
            pytest.fail("acknowledged in an empty memory")
        with pytest.raises(StoreReplaced):
            put(saver, near=False)
    with pytest.raises(StoreReplaced, match=str(witness)):
        RecollectSaver(own_place.url, witness=witness)
    with RecollectSaver(own_place.url) as saver:  # which is what was asked for
        assert saver.get_tuple(THREAD) is None


def test_a_deleted_thread_and_another_process_are_no_cause_for_alarm(place: Place, witness: Path) -> None:
    for _ in range(2):
        with RecollectSaver(place.url, witness=witness) as saver, RecollectSaver(place.url) as other:
            put(saver)
            put(other, near=False)
            other.delete_thread("t")
    with RecollectSaver(place.url, witness=witness) as saver:
        assert saver.get_tuple(THREAD) is None


@pytest.mark.parametrize("near", [True, False])
def test_a_memory_that_was_set_back_is_noticed(tmp_path: Path, witness: Path, near: bool) -> None:
    path, backup = tmp_path / "memory.db", tmp_path / "backup.db"
    url = f"sqlite:///{path}"
    with RecollectSaver(url, witness=witness) as saver:
        put(saver, near=near)
    shutil.copy(path, backup)
    with RecollectSaver(url, witness=witness) as saver:
        put(saver, near=near)
    for file in tmp_path.glob("memory.db*"):
        file.unlink()
    shutil.copy(backup, path)
    with pytest.raises(StoreReplaced, match="rolled back"):
        RecollectSaver(url, witness=witness)


def test_what_is_stored_while_another_thread_closes_is_acknowledged(tmp_path: Path, witness: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    saver = RecollectSaver(url, witness=witness)
    shelf: Any = saver._near_shelf

    class Closing:
        def put_here(self, *given: Any) -> bool:
            done: bool = shelf.put_here(*given)
            with ThreadPoolExecutor() as another:
                another.submit(saver.close).result()
            return done

    saver._near_shelf = cast(Any, Closing())
    config = saver.put(THREAD, empty_checkpoint(), {}, {})
    with RecollectSaver(url, witness=witness) as again:
        assert again.get_tuple(config) is not None


async def test_what_async_methods_change_counts_as_well(tmp_path: Path, witness: Path) -> None:
    async with RecollectSaver(f"sqlite:///{tmp_path}/memory.db", witness=witness) as saver:
        await saver.aput(THREAD, empty_checkpoint(), {}, {})
    assert '"sequence": 1' in witness.read_text()
