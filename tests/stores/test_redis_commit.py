"""Group commit on the wire: while the engine works on one half of the writes, the other half is on its way."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from recollect import Durability, Message, Store, open_store
from recollect.stores.redis.commit import BATCH_MAX, HALVED_LEAST, Commit, QueuedWrite
from recollect.stores.redis.script import APPEND
from recollect.stores.redis.settings import DurabilityPlan
from recollect.stores.redis.wire import Reply, Wire, WireLost
from recollect.verify.engines import Engine
from tests.contract.reading import texts
from tests.stores.redis_places import address, started


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with started("redis", "none") as running:
        yield running


@pytest.fixture
def under_way(monkeypatch: pytest.MonkeyPatch) -> list[list[list[QueuedWrite]]]:
    """For each batch that is sent: all that are under way then, itself the last."""
    seen: list[list[list[QueuedWrite]]] = []
    send = Commit._send

    def noting(commit: Commit, wire: Wire) -> None:
        before = set(commit._sent)
        send(commit, wire)
        if wire in commit._sent and wire not in before:
            seen.append(list(commit._sent.values()))

    monkeypatch.setattr(Commit, "_send", noting)
    return seen


async def append_rounds(store: Store, session_of: Callable[[int], str], callers: int, rounds: int) -> None:
    async def one(caller: int) -> None:
        for number in range(rounds):
            await store.append(session_of(caller), [Message("user", f"{caller} {number}")])

    await asyncio.gather(*map(one, range(callers)))


async def test_halves_overlap(engine: Engine, under_way: list[list[list[QueuedWrite]]]) -> None:
    async with open_store(address(engine)) as store:
        await append_rounds(store, str, 16, 20)
        for caller in range(16):
            assert await texts(store, str(caller)) == [f"{caller} {number}" for number in range(20)]
    assert max(map(len, under_way)) == 2
    assert max(len(batch) for batches in under_way for batch in batches) <= 16 - HALVED_LEAST


async def test_what_follows_a_write_that_is_under_way_waits_for_it(
    engine: Engine, under_way: list[list[list[QueuedWrite]]]
) -> None:
    """One session gets another write at every turn of the loop, and nobody waits for the one before."""

    async def hurried(store: Store) -> None:
        appends = []
        for number in range(200):
            appends.append(asyncio.create_task(store.append("hurried", [Message("user", str(number))])))
            await asyncio.sleep(0)
        await asyncio.gather(*appends)

    async with open_store(address(engine)) as store:
        await asyncio.gather(append_rounds(store, str, 12, 40), hurried(store))
        assert await texts(store, "hurried") == [str(number) for number in range(200)]
    assert max(map(len, under_way)) == 2
    for batches in under_way:
        sessions = [{write.sessions for write in batch} for batch in batches]
        assert sum(map(len, sessions)) == len(set().union(*sessions)), "no session is in two batches"


async def test_few_callers_share_one_round_trip(
    engine: Engine, under_way: list[list[list[QueuedWrite]]]
) -> None:
    async with open_store(address(engine)) as store:
        await append_rounds(store, str, HALVED_LEAST - 1, 20)
    assert max(map(len, under_way)) == 1


async def test_writes_to_one_session_keep_their_order(
    engine: Engine, under_way: list[list[list[QueuedWrite]]]
) -> None:
    """Submitted together, awaited together: stored as they were submitted, in batches that do not overlap."""
    async with open_store(address(engine)) as store:
        await append_rounds(store, str, 16, 3)  # so that there are two connections
        under_way.clear()
        for start in range(0, 200, 40):
            appends = [
                store.append("one" if number % 4 else "other", [Message("user", str(number))])
                for number in range(start, start + 40)
            ]
            await asyncio.gather(*appends)
        assert await texts(store, "one") == [str(number) for number in range(200) if number % 4]
        assert await texts(store, "other") == [str(number) for number in range(0, 200, 4)]


async def test_a_step_over_two_sessions_is_not_overtaken(engine: Engine) -> None:
    async with open_store(address(engine)) as store:
        await store.append_many({"warm": [Message("user", "the engine has the script")]})
        for turn in range(20):
            await asyncio.gather(
                *(store.append(f"s{number}", [Message("user", f"{turn} before")]) for number in range(8)),
                store.append_many(
                    {f"s{number}": [Message("user", f"{turn} both")] for number in range(0, 8, 3)}
                ),
                *(store.append(f"s{number}", [Message("user", f"{turn} after")]) for number in range(8)),
            )
        for number in range(0, 8, 3):
            assert await texts(store, f"s{number}") == [
                f"{turn} {when}" for turn in range(20) for when in ("before", "both", "after")
            ]


async def test_a_small_pool_keeps_a_connection_for_reads(
    engine: Engine, under_way: list[list[list[QueuedWrite]]]
) -> None:
    async with open_store(address(engine), pool_size=2) as store:
        await append_rounds(store, str, 16, 5)
    assert max(map(len, under_way)) == 1


class HandedWire:
    """Keeps what is sent until the test answers it."""

    def __init__(self) -> None:
        self.run = ""
        self.answer: Callable[[list[Reply] | WireLost], None] | None = None

    def ask(self, request: bytes, count: int, done: Callable[[list[Reply] | WireLost], None]) -> None:
        self.answer = done


class HandedPool:
    """One wire at once, and a second one when the test lets it come. What is given back answers the first."""

    def __init__(self) -> None:
        self.first, self.second = HandedWire(), HandedWire()
        self.idle = [self.first]
        self.coming: asyncio.Future[HandedWire] = asyncio.get_running_loop().create_future()

    def take(self) -> HandedWire | None:
        return self.idle.pop() if self.idle else None

    async def wait(self) -> HandedWire:
        return await self.coming

    def give_back(self, wire: HandedWire) -> None:
        self.idle.append(wire)
        if wire is self.second and self.first.answer is not None:
            answer, self.first.answer = self.first.answer, None
            asyncio.get_running_loop().call_soon(lambda: answer([1]))


def commit_on(pool: HandedPool, *, overlaps: bool) -> Commit:
    plan = DurabilityPlan(Durability.BUFFERED, 0, False, b"", 0, None)
    nothing = cast(Any, None)
    return Commit(
        cast(Any, pool), plan, nothing, nothing, timeout_s=60, pool_size=8, overlaps=overlaps, joins=True
    )


async def test_callers_that_gave_up_keep_nobody_waiting() -> None:
    """More of them than a batch holds, at the head of the queue."""
    pool = HandedPool()
    commit = commit_on(pool, overlaps=False)
    first, *given_up, last = [
        commit.submit(QueuedWrite(APPEND, (b"%d" % number,), b"", 0)) for number in range(BATCH_MAX + 3)
    ]
    for write in given_up:
        write.cancel()
    for number, write in enumerate((first, last), 1):
        answer, pool.first.answer = pool.first.answer, None
        assert answer is not None, "it was sent"
        answer([number])
        assert await write == number
    await commit.drain()


async def test_a_connection_that_comes_for_nothing_keeps_nobody_from_going_on() -> None:
    """It comes while all that waits is to follow a write under way, whose answer arrives at the same moment."""
    pool = HandedPool()
    commit = commit_on(pool, overlaps=True)
    writes = [QueuedWrite(APPEND, (b"one session",), b"", 0) for _ in range(HALVED_LEAST)]
    first, *given_up, last = [commit.submit(write) for write in writes]
    await asyncio.sleep(0)
    for future in given_up:
        future.cancel()
    pool.coming.set_result(pool.second)
    assert await first == 1
    for _ in range(5):
        await asyncio.sleep(0)
    (wire,) = [wire for wire in (pool.first, pool.second) if wire.answer is not None]
    assert wire.answer is not None
    wire.answer([2])
    assert await last == 2
    await commit.drain()
