"""A wiped, swapped or rolled-back store is noticed at open, not by a user at 2 a.m."""

import json
import shutil
from pathlib import Path

import pytest

from recollect import CannotOpen, Message, StoreReplaced, open_store
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
