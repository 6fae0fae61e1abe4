"""No alarm on memories that only stores have written: every verb, expiry, and writers at work while it audits."""

import random
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from recollect import SessionState, open_store
from recollect.audit.auditing import opened
from recollect.audit.session_reading import SessionReading
from recollect.errors import CannotOpen
from recollect.verify.engines import Engine
from tests.audit.memories import STORES, Memory, memory_of, said
from tests.audit.writers import changes, writing


@pytest.fixture(params=STORES)
async def memory(
    request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path
) -> Memory:
    return await memory_of(request.param, engine_of, tmp_path)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of a few messages are read in many pieces."""
    for engine in STORES:
        monkeypatch.setattr(f"recollect.audit.{engine}.PIECE", 3)


@pytest.mark.parametrize("seed", range(3))
async def test_every_verb(memory: Memory, seed: int) -> None:
    async with open_store(memory.url, turns_kept=5) as store:
        await changes(store, random.Random(seed), ["one", "two", "three"], 60)
        assert await memory.names() == []
    report = await memory.audit()
    assert report.counts == {}
    assert report.sessions > 2
    assert report.messages > 0


async def test_an_erasure_that_another_store_finds_is_no_loss(memory: Memory) -> None:
    async with open_store(memory.url) as store, open_store(memory.url) as eraser:
        await store.append("s", said("a", "b"))
        await eraser.forget("s", erase=True)
        assert (await memory.audit()).counts == {}
        await store.append("s", said("c"))
    report = await memory.audit()
    assert (report.counts, report.messages) == ({}, 1)
    # Whose erased sessions stay, without an id.
    assert report.sessions == 1 or memory.url.startswith("sqlite")


async def test_where_nothing_was_ever_stored_nothing_is_in_order(memory: Memory) -> None:
    """An emptied Redis has no sessions either: that everything is there is not for an audit to say."""
    with pytest.raises(CannotOpen):
        await memory.audit()
    async with open_store(memory.url):
        pass
    assert (await memory.audit()).counts == {}  # a memory without a session is one


@pytest.mark.usefixtures("small_pieces")
async def test_long_sessions_are_read_in_pieces(memory: Memory) -> None:
    async with open_store(memory.url) as store:
        await store.append("s", said(*"abcdefghijklmnop"))
        await store.retract("s", 3, 4, 5, 9)
        await store.append("s", said("x"))
    report = await memory.audit()
    assert report.counts == {}
    assert (report.sessions, report.messages) == (1, 13)


@pytest.mark.usefixtures("small_pieces")
async def test_beside_writers(memory: Memory) -> None:
    async with open_store(memory.url):
        pass  # so that there is something to audit
    audits = 0
    with writing(memory.url, seed=1, count=80) as at_work:
        while at_work():
            report = await memory.audit()
            assert not [finding for finding in report.findings if finding.level == "damage"]
            audits += 1
    assert audits
    report = await memory.audit()
    assert report.counts == {}
    assert report.messages


@pytest.mark.usefixtures("small_pieces")
async def test_what_happens_between_two_pieces(memory: Memory) -> None:
    """Nothing is skipped and nothing is accused, whatever moves under the one who reads."""
    async with open_store(memory.url) as store:
        await store.append("s", said(*"abcdefghijkl"))
        source = await opened(memory.url, 10.0)
        try:
            [ref] = [ref async for batch in source.batches("") for ref in batch.sessions]
            reading = SessionReading("s")

            async def read_on() -> None:
                piece = await source.piece(ref, reading.cursor)
                assert piece is not None
                reading.take(piece)

            await read_on()
            assert (reading.cursor, reading.messages) == (3, 3)
            await store.retract("s", 1, 2, 3)
            await read_on()
            before = 5 if memory.kind == "redis" else 6  # a list is read from its run on again
            assert (reading.cursor, reading.messages) == (before, before)
            await store.retract("s", 5, 6, 7)  # a run that begins before the next piece
            while reading.cursor < 13:
                await read_on()
            await store.replace("s", said("x", "y"))
            while reading.cursor < 16:
                await read_on()
            assert reading.messages == before + 5 + 2
            assert (reading.gaps, reading.findings) == ([], [])
        finally:
            await source.close()


async def test_sessions_that_expire(memory: Memory) -> None:
    async with open_store(memory.url, ttl=timedelta(milliseconds=300)) as store:
        await store.append("short", said("a", "b"), turn="t")
        await store.annotate("short", {"a": 1})
        assert await memory.names() == []
        deadline = time.monotonic() + 30
        while await store.state("short") is not SessionState.EXPIRED:
            assert time.monotonic() < deadline
        assert await memory.names() == []
        expired = (await memory.audit()).counts
        assert expired == ({} if memory.kind == "redis" else {"expired": 1})  # Redis frees by itself
        await store.append("short", said("c"))
        assert await memory.names() == []
        while await store.state("short") is not SessionState.EXPIRED:
            assert time.monotonic() < deadline
        await store.sweep()
        assert (await memory.audit()).counts == {}


async def test_a_session_that_lives_for_a_while(memory: Memory) -> None:
    for refresh in ("append", "read", "never"):
        async with open_store(memory.url, ttl=timedelta(days=1), refresh=refresh) as store:
            await store.append(refresh, said("a"))
            await store.append(refresh, said("b"))
            await store.history(refresh)
            await store.fork(refresh, f"{refresh}-copy")
            await store.replace(refresh, said("c"))
    async with open_store(memory.url) as store:
        await store.append("append", said("for ever"))
    assert (await memory.audit()).counts == {}


async def test_ids_that_need_care(memory: Memory) -> None:
    async with open_store(memory.url) as store:
        for session in ("a:b", "{x}", "*", "ü\udcff", "with\x00nul", "%41", "x" * 5_000):
            await store.append(session, said("a"), turn="t")
    report = await memory.audit()
    assert (report.counts, report.sessions) == ({}, 7)


async def test_nothing_at_all(memory: Memory) -> None:
    async with open_store(memory.url):
        pass
    report = await memory.audit()
    assert (report.counts, report.sessions, report.messages) == ({}, 0, 0)
    assert report.identity
