"""A wiped, swapped or rolled-back store is noticed at open, not by a user at 2 a.m."""

import asyncio
import json
import os
import pkgutil
import shutil
import signal
import threading
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from recollect import CannotOpen, Message, Store, StoreReplaced, open_store
from recollect.witness import remembered_by
from tests.contract.conftest import Place
from tests.contract.reading import texts


async def test_the_same_store_opens_again(own_place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("s", [Message("user", "x")])
    remembered = json.loads(witness.read_text())
    assert remembered["mark"] == {"session": "s", "sequence": 1}
    async with open_store(own_place.url, witness=witness) as store:
        assert remembered["store"] == store.identity
        assert await texts(store, "s") == ["x"]


async def test_a_wiped_store_is_refused(own_place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("s", [Message("user", "x")])
    _wipe(own_place)
    with pytest.raises(StoreReplaced, match="another store"):
        await open_store(own_place.url, witness=witness)
    async with open_store(own_place.url) as store:
        assert await store.history("s") == []
    witness.unlink()
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("s", [Message("user", "anew")])


async def test_a_rolled_back_store_is_refused(own_place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("s", [Message("user", "early")])
    backup = tmp_path / "backup"
    data = _data(own_place)
    own_place.engine.stop()
    shutil.copytree(data, backup, symlinks=True)
    _restart(own_place)
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("s", [Message("user", "late")])
    own_place.engine.stop()
    _restore(backup, data)
    _restart(own_place)
    with pytest.raises(StoreReplaced, match="rolled back"):
        await open_store(own_place.url, witness=witness)


async def test_forgetting_and_expiry_are_no_alarm(own_place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("s", [Message("user", "x")])
        await store.forget("s")
    await (await open_store(own_place.url, witness=witness)).close()


async def test_a_file_that_is_no_witness_is_refused(own_place: Place, tmp_path: Path) -> None:
    for content in ("", "{}", "[]", '{"store": 1}'):
        (tmp_path / "witness.json").write_text(content)
        with pytest.raises(CannotOpen, match="not a witness file"):
            await open_store(own_place.url, witness=tmp_path / "witness.json")
    with pytest.raises(CannotOpen, match="does not exist"):
        await open_store(own_place.url, witness=tmp_path / "nowhere" / "witness.json")


def _data(place: Place) -> Path:
    if place.name == "sqlite":
        return Path(place.url.removeprefix("sqlite:///")).parent
    assert place.engine.data is not None
    return place.engine.data


def _restore(backup: Path, data: Path) -> None:
    """Puts the files of the backup in place of the data, owners kept."""
    owner = data.stat()
    shutil.rmtree(data)
    shutil.copytree(backup, data, symlinks=True)
    for path in (data, *data.rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    data.chmod(owner.st_mode)


def _restart(place: Place) -> None:
    endpoint = place.engine.restart()
    if place.name != "sqlite":
        place.url = endpoint.socket_url or endpoint.url


def _wipe(place: Place) -> None:
    if place.name == "sqlite":
        for path in _data(place).iterdir():
            path.unlink()
        return
    place.engine.stop()
    place.engine.wipe()
    _restart(place)


@pytest.fixture(autouse=True)
def _sqlite_in_a_folder_of_its_own(own_place: Place, tmp_path: Path) -> None:
    if own_place.name == "sqlite":
        (tmp_path / "db").mkdir()
        own_place.url = f"sqlite:///{tmp_path}/db/memory.db"


async def test_a_file_that_cannot_be_written_is_refused(own_place: Place) -> None:
    with pytest.raises(CannotOpen, match=r"witness /proc/self/w: it cannot be written .*; name another file"):
        await open_store(own_place.url, witness="/proc/self/w")


async def test_a_store_that_appended_nothing_leaves_the_newer_mark_of_another(
    own_place: Place, tmp_path: Path
) -> None:
    """Several processes share the file, and a reader may close last."""
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as first:
        await first.append("s", [Message("user", "one")])
    async with open_store(own_place.url, witness=witness):
        async with open_store(own_place.url, witness=witness) as writer:
            await writer.append("s", [Message("user", "two")])
        newest = witness.read_text()
    assert witness.read_text() == newest
    assert json.loads(newest)["mark"]["sequence"] == 2


async def test_what_one_process_has_erased_another_does_not_remember(
    own_place: Place, tmp_path: Path
) -> None:
    """The other has noted it before, and writes the file later: at its next append, or when it is closed."""
    witness = tmp_path / "witness.json"
    for goes_on in (False, True):
        async with open_store(own_place.url, witness=witness) as store:
            async with open_store(own_place.url, witness=witness) as other:
                await store.append("stays", [Message("user", "x")])
                assert other._witness is not None  # type: ignore[attr-defined]
                for _ in range(2):
                    other._witness._written_at = 0.0  # type: ignore[attr-defined]  # the last time is long ago
                    await other.append("canary", [Message("user", "x")])
                await store.forget("canary", erase=True)
                if goes_on:
                    other._witness._written_at = 0.0  # type: ignore[attr-defined]
                    await other.append("stays", [Message("user", "x")])
            assert "canary" not in witness.read_text()
        assert "canary" not in witness.read_text()
        remembered = remembered_by(witness)
        assert remembered is not None
        assert remembered[1] is not None
        assert remembered[1].session == "stays", "what was not erased is remembered"
        await (await open_store(own_place.url, witness=witness)).close()


async def test_a_reader_that_opens_and_closes_leaves_the_marks_of_others_as_they_are(
    own_place: Place, tmp_path: Path
) -> None:
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as writer:
        await writer.append("s", [Message("user", "x")])
        async with open_store(own_place.url, witness=witness) as reader:
            await reader.history("s")
    remembered = remembered_by(witness)
    assert remembered is not None
    assert remembered[1] is not None
    assert remembered[1].sequence == 1


async def test_a_clock_that_is_set_back_keeps_no_mark_out(own_place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("s", [Message("user", "x")])
        content = json.loads(witness.read_text())
        witness.write_text(json.dumps(content | {"noted": 2**62}))
    remembered = remembered_by(witness)
    assert remembered is not None
    assert remembered[1] is not None


async def test_what_another_has_erased_is_not_named_again_when_this_one_erases(
    own_place: Place, tmp_path: Path
) -> None:
    """It remembers a session from opening that is gone by then."""
    witness = tmp_path / "witness.json"
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("canary", [Message("user", "x")])
    async with open_store(own_place.url, witness=witness) as store:
        async with open_store(own_place.url, witness=witness) as other:
            await other.append("more", [Message("user", "x")])
            await other.forget("canary", erase=True)
            await store.forget("more", erase=True)
        assert "canary" not in witness.read_text()
    await (await open_store(own_place.url, witness=witness)).close()


ANSWERED = {"sqlite": "_batcher.submit", "redis": "_servers.submit", "postgres": "_append_one"}
"""What an append waits for, where it leaves the event loop."""


async def test_an_append_that_is_told_after_another_erased_it_is_not_remembered(
    own_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was busy with something else meanwhile."""
    witness = tmp_path / "witness.json"
    stored, erased = asyncio.Event(), asyncio.Event()
    async with open_store(own_place.url, witness=witness) as store:
        at_the_engine = attrgetter(ANSWERED[own_place.name])(store)

        async def told_late(*given: Any) -> Any:
            answer = await at_the_engine(*given)
            stored.set()
            await erased.wait()
            return answer

        monkeypatch.setattr(at_the_engine.__self__, at_the_engine.__name__, told_late)
        if own_place.name == "sqlite":
            monkeypatch.setattr(at_the_engine.__self__, "alone", lambda: False)
        async with open_store(own_place.url, witness=witness) as other, asyncio.timeout(60):
            append = asyncio.create_task(store.append("canary", [Message("user", "x")]))
            await stored.wait()
            await other.forget("canary", erase=True)
            erased.set()
            await append
    await (await open_store(own_place.url, witness=witness)).close()


async def test_a_fork_does_not_keep_others_from_writing(
    own_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a copy of the lock that another thread held at that moment."""
    witness, url = tmp_path / "witness.json", own_place.url
    writes, forked = threading.Event(), threading.Event()
    dump = json.dump

    def held_up(*given: Any) -> None:
        writes.set()
        assert forked.wait(30)
        dump(*given)

    async with open_store(url, witness=witness) as store:
        monkeypatch.setattr(json, "dump", held_up)
        closing = asyncio.create_task(_append_and_close(store))
        assert await asyncio.to_thread(writes.wait, 30)
        child = os.fork()
        while child == 0:
            signal.pause()
        try:
            forked.set()
            await closing
            monkeypatch.setattr("recollect.witness.LOCK_MAX_S", 60.0)
            async with asyncio.timeout(30):
                await (await open_store(url, witness=witness)).close()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


async def _append_and_close(store: Store) -> None:
    await store.append("s", [Message("user", "x")])
    await store.close()


async def test_erasures_at_once_all_reach_the_file(own_place: Place, tmp_path: Path) -> None:
    witness = tmp_path / "witness.json"
    sessions = [f"s{number}" for number in range(6)]
    async with open_store(own_place.url, witness=witness) as store:
        for session in sessions:
            await store.append(session, [Message("user", "x")])
        reports = await asyncio.gather(*(store.forget(session, erase=True) for session in sessions))
    for report in reports:
        assert report is not None
        assert "the witness" in report.reached
    assert [path.name for path in tmp_path.glob("witness*")] == ["witness.json"]
    await (await open_store(own_place.url, witness=witness)).close()


ERASING = {
    "sqlite": "recollect.stores.sqlite.store.erase_from_file",
    "redis": "recollect.stores.redis.store.rewrite_files",
    "postgres": "recollect.stores.postgres.store.rewrite_files",
}
"""What deletes a session, or comes after that and takes long."""


async def test_a_store_that_is_opened_during_an_erasure_misses_nothing(
    own_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness.json"
    deleted, opened = threading.Event(), threading.Event()
    rewrites = pkgutil.resolve_name(ERASING[own_place.name])

    def held_up(*given: Any) -> Any:
        report = rewrites(*given)
        deleted.set()
        assert opened.wait(30)
        return report

    async def held_up_on_the_loop(*given: Any) -> Any:
        deleted.set()
        assert await asyncio.to_thread(opened.wait, 30)
        return await rewrites(*given)

    monkeypatch.setattr(
        ERASING[own_place.name], held_up if own_place.name == "sqlite" else held_up_on_the_loop
    )
    async with open_store(own_place.url, witness=witness) as store:
        await store.append("canary", [Message("user", "x")])
    async with open_store(own_place.url, witness=witness) as store:
        erasing = asyncio.create_task(store.forget("canary", erase=True))
        try:
            assert await asyncio.to_thread(deleted.wait, 30)
            await (await open_store(own_place.url, witness=witness)).close()
        finally:
            opened.set()
            await erasing
