"""Keys that a scan has named: each once, the latest first, in memory or in a file that nobody sees."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import Message, open_store
from recollect.stores.redis import listing
from recollect.stores.redis.listing import SeenSessions
from tests.stores.redis_places import address, new_prefix, started

KEYS = [b"session-%d\0\xff" % number for number in range(60)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(params=["memory", "file", "no file"])
def kept(
    request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SeenSessions]:
    if request.param != "memory":
        monkeypatch.setattr(listing, "HELD_MAX", 10)
    if request.param == "no file":
        monkeypatch.setattr(tempfile, "tempdir", str(folder / "absent"))
    made = SeenSessions()
    yield made
    assert (made._file is not None) == (request.param == "file")
    assert list(folder.iterdir()) == [], "a file that is open has no name"
    made.close()


async def test_each_key_is_named_once_and_the_latest_comes_first(kept: SeenSessions) -> None:
    named: list[bytes] = []
    for first in range(0, len(KEYS), 7):
        some = [*KEYS[max(first - 3, 0) : first + 7], *KEYS[first : first + 2]]
        fresh = kept.unseen(some)
        kept.changed(fresh, [float(KEYS.index(key) // 2) for key in fresh])
        named += fresh
    assert named == KEYS
    assert kept.unseen(KEYS) == []
    latest = [key async for some in kept.latest_first(10.0) for key in some]
    assert latest == sorted(KEYS[22:], key=lambda key: (KEYS.index(key) // 2, key), reverse=True)


def test_many_keys_take_no_memory() -> None:
    made = SeenSessions()
    tracemalloc.start()
    try:
        for first in range(0, 3 * listing.HELD_MAX, 1_000):
            made.unseen(b"%d" % number for number in range(first, first + 1_000))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        made.close()
    assert held < 500_000, "they are in the file"


async def test_a_store_lists_from_the_file_as_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with started("redis", "none") as engine:
        async with open_store(address(engine, new_prefix())) as store:
            names = [f"session-{number}" for number in range(30)]
            for name in names:
                await store.append(name, [Message("user", "hello")])
            before = [name async for name in store.sessions(updated_after=0.0)]
            monkeypatch.setattr(listing, "HELD_MAX", 4)
            monkeypatch.setattr("recollect.stores.redis.servers.SCAN_COUNT", 5)
            assert sorted([name async for name in store.sessions()]) == sorted(names)
            assert [name async for name in store.sessions(updated_after=0.0)] == before
