"""Messages that are gone are said to be gone: evicted, deleted by hand, lost with the last writes, or wiped."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from recollect import (
    Conflict,
    Damaged,
    EngineUnavailable,
    Message,
    SessionState,
    Store,
    Stored,
    StoreReplaced,
    Unreadable,
    open_store,
)
from recollect.message import encode
from recollect.stores.redis.elements import placing
from recollect.verify.engines import Engine
from tests.contract.reading import texts
from tests.stores.redis_places import BUILDS, address, hands_on, new_prefix, started


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


def say(*words: str) -> list[Message]:
    return [Message("user", word) for word in words]


def shape(found: list[Stored]) -> list[int | tuple[int, str]]:
    """Sequences of messages; of what is damaged, the sequence and the first words of the reason."""
    return [
        item.sequence
        if isinstance(item.message, Message)
        else (item.sequence, " ".join(item.message.reason.split()[:4]))
        for item in found
    ]


# ---- single keys, as eviction or a colleague takes them


async def test_metadata_that_is_gone_is_missed(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        for session in ("annotated", "replaced", "forgotten", "plain"):
            await store.append(session, say("a", "b"))
        for session in ("annotated", "replaced", "forgotten"):
            await store.annotate(session, {"topic": session})
        await store.append("annotated", say("c"))
        await store.replace("replaced", say("all"))
        await store.fork("annotated", "forked")
        await store.forget("forgotten")
        await store.append("forgotten", say("again"))
        assert (await store.describe("forked")).metadata == {"topic": "annotated"}
        with hands_on(engine) as hands:
            for session in ("annotated", "replaced", "forgotten", "forked", "plain"):
                hands.hdel(f"{prefix}:{{s{session}}}:c", "metadata")
        for session in ("annotated", "replaced", "forked"):
            with pytest.raises(Unreadable, match="its metadata is gone"):
                await store.describe(session)
            assert await store.history(session)
        for session in ("forgotten", "plain"):
            assert (await store.describe(session)).metadata == {}
        await store.annotate("annotated", {})
        assert (await store.describe("annotated")).metadata == {}


async def test_evicted_messages_are_one_damaged_item(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a", "b", "c"))
        with hands_on(engine) as hands:
            hands.delete(f"{prefix}:{{ss}}:m")
        assert shape(await store.history("s")) == [(1, "messages 1 to 3")]
        assert shape(await store.history("s", last=2)) == [(1, "messages 1 to 3")]
        assert await store.history("s", after=3) == []
        assert await store.state("s") is SessionState.LIVE
        assert (await store.append("s", say("d"))).first == 4
        assert shape(await store.history("s")) == [(1, "messages 1 to 3"), 4]
        await store.forget("s")
        assert await store.history("s") == []


async def test_messages_evicted_before_their_time_are_not_called_expired(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix), ttl=timedelta(hours=1)) as store:
        await store.append("s", say("a", "b"))
        with hands_on(engine) as hands:
            hands.delete(f"{prefix}:{{ss}}:m")
        assert shape(await store.history("s")) == [(1, "messages 1 to 2")]
        await store.append("s", say("c"))
        assert shape(await store.history("s")) == [(1, "messages 1 to 2"), 3]


async def test_an_evicted_counter_is_found_again_in_the_list(engine: Engine) -> None:
    prefix = new_prefix()
    url = address(engine, prefix)
    async with open_store(url) as store:
        await store.append("s", say("a", "b"))
        await store.forget("s")
        await store.append("s", say("c"))
        with hands_on(engine) as hands:
            hands.delete(f"{prefix}:{{ss}}:c")
    async with open_store(url) as other:
        assert shape(await other.history("s")) == [3]
        with pytest.raises(Conflict):
            await other.append("s", say("x"), expect=0)
        assert (await other.append("s", say("d"), expect=3)).last == 4
        assert shape(await other.history("s")) == [3, 4]


@pytest.mark.parametrize("retracted", [False, True])
async def test_a_floor_that_has_changed_on_the_disk_hides_nothing(engine: Engine, *, retracted: bool) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a", "b", "c", "d", "e", "f"))
        if retracted:
            await store.retract("s", 2)
        wanted = await store.history("s")
        with hands_on(engine) as hands:
            hands.hset(f"{prefix}:{{ss}}:c", "floor", 4)
        assert await store.history("s") == wanted
        assert await store.history("s", last=5) == wanted[-5:]


@pytest.mark.parametrize("expected", [False, True])
async def test_a_session_evicted_whole_can_be_forgotten(engine: Engine, *, expected: bool) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a", "b"))
        with hands_on(engine) as hands:
            hands.delete(f"{prefix}:{{ss}}:m", f"{prefix}:{{ss}}:c")
        if expected:
            with pytest.raises(Conflict):
                await store.forget("s", expect=2)
        await store.forget("s", expect=2 if expected else None)
        assert await store.history("s") == []
        assert await store.state("s") is SessionState.FORGOTTEN
        assert (await store.append("s", say("c"))).first == 3


async def test_a_copy_of_what_was_lost_shows_the_loss(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a", "b", "c", "d"))
        with hands_on(engine) as hands:
            hands.ltrim(f"{prefix}:{{ss}}:m", 1, 2)
            hands.hset(f"{prefix}:{{ss}}:c", "last", 3)
        wanted = [(1, "messages 1 to 1"), 2, 3, (4, "messages 4 to 4")]
        assert shape(await store.history("s")) == wanted
        assert (await store.fork("s", "copy")).last == 4
        assert shape(await store.history("copy")) == wanted


@pytest.mark.parametrize("length", [1, 64, 65, 5_000, 90_000])
async def test_a_session_evicted_whole_is_missed_by_the_store_that_wrote_it(
    engine: Engine, length: int
) -> None:
    session = "s" * length
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append(session, say("a", "b"))
        with hands_on(engine) as hands:
            hands.delete(f"{prefix}:{{s{session}}}:m", f"{prefix}:{{s{session}}}:c")
        assert shape(await store.history(session)) == [(1, "messages 1 to 2")]
        with pytest.raises(Conflict, match="has lost messages up to sequence 2, and others may have written"):
            await store.append(session, say("c"), expect=2)
        assert (await store.append(session, say("c"), expect=2)).last == 3
        assert shape(await store.history(session)) == [(1, "messages 1 to 2"), 3]


async def test_sessions_that_are_swept_or_erased_push_out_none_that_is_in_use(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("recollect.known", "recollect.stores.redis.places"):
        monkeypatch.setattr(f"{module}.SESSIONS_KNOWN_MAX", 3)
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store, open_store(address(engine, prefix)) as other:
        for number in range(6):
            await other.append(f"other {number}", say("a"))
        await store.append("s", say("a", "b"))
        await store.sweep()
        for number in range(6):
            await store.forget(f"other {number}", erase=True)
        with hands_on(engine) as hands:
            hands.delete(f"{prefix}:{{ss}}:m", f"{prefix}:{{ss}}:c")
        assert shape(await store.history("s")) == [(1, "messages 1 to 2")]


async def test_real_eviction_is_never_silent() -> None:
    """Sessions of 20 messages until the engine evicts: each is whole, or says what it lacks."""
    with started("redis@7", "none") as engine, hands_on(engine) as hands:
        async with open_store(address(engine)) as store:
            hands.config_set("maxmemory-policy", "allkeys-random")
            hands.config_set("maxmemory", hands.info("memory")["used_memory"] + 1_500_000)
            names = [f"s{number}" for number in range(60)]
            try:
                for name in names:
                    for _ in range(2):
                        await store.append(name, say(*["x" * 5000] * 10))
                hands.config_set("maxmemory", 0)
                assert hands.info("stats")["evicted_keys"] > 0
                short = [name for name in names if await _check_whole_or_told(store, name)]
                assert short
            except StoreReplaced:
                pass  # the identity was evicted: told, too


async def _check_whole_or_told(store: Store, session: str) -> bool:
    """True if something is missing."""
    found = await store.history(session)
    covered = [item.sequence for item in found if isinstance(item.message, Message)]
    for item in found:
        if isinstance(item.message, Damaged):
            first, last = item.message.reason.split()[1:4:2]
            covered += range(int(first), int(last) + 1)
    assert sorted(covered) == list(range(1, 21))
    return len(found) < 20


async def test_holes_are_shown_where_they_are(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a", "b", "c", "d", "e"))
        key = f"{prefix}:{{ss}}:m"
        with hands_on(engine) as hands:
            elements = hands.lrange(key, 0, -1)
            hands.lrem(key, 1, elements[1])
            hands.lrem(key, 1, elements[2])
        assert shape(await store.history("s")) == [1, (2, "messages 2 to 3"), 4, 5]
        assert shape(await store.history("s", after=1)) == [(2, "messages 2 to 3"), 4, 5]
        assert shape(await store.history("s", last=3)) == [1, (2, "messages 2 to 3"), 4, 5]
        with hands_on(engine) as hands:
            hands.rpop(key)
        assert shape(await store.history("s", last=2)) == [
            1,
            (2, "messages 2 to 3"),
            4,
            (5, "messages 5 to 5"),
        ]


async def test_a_line_end_in_a_foreign_element_stays_in_it(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a", "b", "c"))
        with hands_on(engine) as hands:
            hands.lset(f"{prefix}:{{ss}}:m", 1, '2 {"role": "user",\n"content": "b"}')
        assert await texts(store, "s") == ["a", "b", "c"]


async def test_what_another_tool_adds_hides_nothing(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a", "b"))
        with hands_on(engine) as hands:
            hands.rpush(f"{prefix}:{{ss}}:m", '{"role": "user", "content": "foreign"}')
        assert await texts(store, "s") == ["a", "b", "foreign"]
        assert await texts(store, "s", after=1) == ["b", "foreign"]


def test_an_element_that_is_there_twice() -> None:
    found: list[Stored] = []
    assert list(placing(found, [b"4 {}", b"5 {}", b"5 {}", b"6 {}"], 4, 6)) == []
    assert [item.sequence for item in found] == [4, 5, 5, 6]
    assert isinstance(found[2].message, Damaged)
    assert "twice" in found[2].message.reason


def test_of_an_element_that_is_there_twice_neither_is_believed() -> None:
    """The first may be another session's, whose key has changed on the disk."""
    mine, foreign = encode(Message("user", "mine")), encode(Message("user", "of another session"))
    found: list[Stored] = []
    list(placing(found, [b"1 " + foreign, b"1 " + mine, b"2 " + mine], 1, 2))
    assert [type(item.message) for item in found] == [Damaged, Damaged, Message]
    first, second = found[0].message, found[1].message
    assert isinstance(first, Damaged)
    assert isinstance(second, Damaged)
    assert (first.raw, second.raw) == (foreign, b"1 " + mine)


# ---- an engine that lost its last writes, or everything


@pytest.mark.parametrize("build", BUILDS)
async def test_acknowledged_messages_lost_in_a_crash_leave_a_hole_and_no_sequence_is_reused(
    build: str,
) -> None:
    with started(build, "rdb") as engine:
        url = address(engine)
        async with open_store(url) as store:
            await store.append("s", say("a", "b", "c"))
            await store.append("quiet", say("a"))
            with hands_on(engine) as hands:
                hands.save()
            await store.append("s", say("d", "e"), turn="t")
            await store.append("late", say("a"))
            engine.kill()
            engine.restart()
            assert shape(await store.history("s")) == [1, 2, 3, (4, "messages 4 to 5")]
            assert shape(await store.history("s", last=1)) == [3, (4, "messages 4 to 5")]
            assert shape(await store.history("late")) == [(1, "messages 1 to 1")]
            assert shape(await store.history("quiet")) == [1]
            # Its turn is lost with it, so a retry stores it again, in a new place.
            with pytest.raises(Conflict):
                await store.append("s", say("d", "e"), turn="t", expect=5)
            assert (await store.append("s", say("d", "e"), turn="t", expect=5)).first == 6
        async with open_store(url) as other:
            assert shape(await other.history("s")) == [1, 2, 3, (4, "messages 4 to 5"), 6, 7]


async def test_a_session_lost_and_forgotten_stays_forgotten() -> None:
    with started("redis@7", "rdb") as engine:
        async with open_store(address(engine)) as store:
            await store.append("s", say("a"))
            with hands_on(engine) as hands:
                hands.save()
            await store.append("s", say("b", "c"))
            engine.kill()
            engine.restart()
            await store.forget("s")
            assert await store.history("s") == []
            assert (await store.append("s", say("d"))).first == 4


@pytest.mark.parametrize("build", BUILDS)
async def test_a_wiped_engine_is_not_an_empty_memory(build: str) -> None:
    with started(build, "aof-always") as engine:
        url = address(engine)
        async with open_store(url) as store:
            await store.append("s", say("a"))
            engine.kill()
            engine.wipe()
            engine.restart()
            with pytest.raises(StoreReplaced, match="wiped"):
                await store.history("never seen here")
            with pytest.raises(StoreReplaced, match="wiped"):
                await store.append("s", say("b"))
            with pytest.raises(StoreReplaced):
                await store.state("s")
        async with open_store(url) as again:
            assert await again.history("s") == []


async def test_an_engine_that_is_still_loading_is_not_taken_for_a_wiped_one(tmp_path: Path) -> None:
    config = tmp_path / "slow.conf"
    config.write_text("key-load-delay 10000\nloading-process-events-interval-bytes 1024\nsave ''\n")
    with started("redis@7", "custom", config) as engine, hands_on(engine) as hands:
        async with open_store(address(engine)) as store:
            await store.append("s", say("a"))
            hands.mset({f"filler-{number}": os.urandom(1100) for number in range(100)})
            hands.save()
            engine.kill()
            restarting = asyncio.create_task(asyncio.to_thread(engine.restart))
            refused: set[str] = set()
            while not restarting.done():
                try:
                    await store.history("s")
                except EngineUnavailable as error:
                    refused.add("loading" if "loading" in str(error) else "down")
                await asyncio.sleep(0.001)
            await restarting
            assert "loading" in refused
            assert await texts(store, "s") == ["a"]


async def test_flushed_under_a_running_store(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", say("a"))
        with hands_on(engine) as hands:
            for key in hands.scan_iter(f"{prefix}:*"):
                hands.delete(key)
            with pytest.raises(StoreReplaced):
                await store.append("s", say("b"))
            with pytest.raises(StoreReplaced):
                await store.append("other", say("b"))
            assert not list(hands.scan_iter(f"{prefix}:*")), "nothing was written to what took its place"


async def _listed(store: Store, updated_after: float | None = None) -> list[str]:
    return [session async for session in store.sessions(updated_after=updated_after)]


@pytest.mark.parametrize(
    "look",
    [
        lambda store: store.find("s", "m1"),
        _listed,
        lambda store: _listed(store, updated_after=0),
    ],
    ids=["find", "sessions", "latest sessions"],
)
async def test_what_a_flushed_engine_has_no_longer_is_not_said_to_be_nowhere(
    engine: Engine, look: Callable[[Store], Awaitable[object]]
) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", [Message("user", "a", id="m1")])
        with hands_on(engine) as hands:
            for key in hands.scan_iter(f"{prefix}:*"):
                hands.delete(key)
        with pytest.raises(StoreReplaced):
            await look(store)


async def test_a_rolled_back_engine_is_found_by_the_witness(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with started("redis@7", "rdb") as engine:
        url = address(engine)
        async with open_store(url, witness=witness) as store:
            with hands_on(engine) as hands:
                hands.save()
            await store.append("s", say("a"))
        engine.kill()
        engine.restart()
        with pytest.raises(StoreReplaced, match="rolled back"):
            await open_store(url, witness=witness)


# ---- expiry


async def test_the_engine_frees_expired_messages_by_itself_and_keeps_turn_ids_a_day(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix), ttl=timedelta(milliseconds=80)) as store:
        receipt = await store.append("s", say("a"), turn="t")
        with hands_on(engine) as hands:
            messages, counter, turns = (f"{prefix}:{{ss}}:{kind}" for kind in "mct")
            assert hands.pttl(messages) in (-2, *range(81))  # -2: gone already, on a busy machine
            assert hands.pttl(counter) == -1
            assert hands.pttl(turns) > timedelta(hours=23).total_seconds() * 1000
            await _until_gone(hands.exists, messages)
        assert await store.state("s") is SessionState.EXPIRED
        assert await store.append("s", say("a"), turn="t") == receipt
        assert await store.sweep() == 1
        assert await store.sweep() == 0
        assert await store.state("s") is SessionState.EXPIRED
        assert (await store.append("s", say("b"))).first == 2
        assert shape(await store.history("s")) == [2]


async def test_a_session_that_was_forgotten_and_then_expired_is_expired(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix), ttl=timedelta(milliseconds=50)) as store:
        await store.append("s", say("a"))
        await store.forget("s")
        await store.append("s", say("b"))
        with hands_on(engine) as hands:
            await _until_gone(hands.exists, f"{prefix}:{{ss}}:m")
        assert await store.state("s") is SessionState.EXPIRED


async def _until_gone(exists: Callable[[str], int], key: str) -> None:
    deadline = time.monotonic() + 5
    while exists(key):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
