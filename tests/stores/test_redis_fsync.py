"""The fsync of an everysec AOF, seen from outside: never believed too early, whatever else the engine does."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recollect import Durability, Message, NotWritten, OutcomeUnknown, open_store
from recollect.stores.redis.fsync import FsyncWatch, Look, _Wait
from recollect.stores.redis.slots import slot_of
from recollect.stores.redis.wire import Reply
from recollect.verify.engines import Reconfigurable
from recollect.verify.engines.redis_cluster import RedisClusterEngine
from recollect.verify.host import ports
from tests.contract.reading import texts
from tests.stores.redis_places import address, hands_on, started

HELLO = [Message("user", "hello")]


# ---- an engine on paper, turn by turn of its event loop


class EverySec:
    """What Redis's aof.c and bio.c do with `appendfsync everysec`; writes are numbers."""

    def __init__(self) -> None:
        self.time_s = 100.0
        self.fsync_s = 0.0
        self.fails = False
        self.durable: set[int] = set()
        self.rewrites = 0
        self._last_fsync_s = 99.5
        self._buffer: list[int] = []
        self._file: list[int] = []
        self._unsynced = False
        self._jobs: deque[tuple[str, list[int], float]] = deque()
        self._busy_until_s: float | None = None
        self._postponed_s: float | None = None

    def write(self, number: int) -> None:
        self._buffer.append(number)

    def turn(self, passed_s: float) -> None:
        """Time passes, the background thread works, and the loop comes to its end once."""
        self.time_s += passed_s
        while self._jobs and self._busy_until_s is not None and self._busy_until_s <= self.time_s:
            _, numbers, _ = self._jobs.popleft()
            if not self.fails:
                self.durable |= set(numbers)
            self._busy_until_s = self._busy_until_s + self._jobs[0][2] if self._jobs else None
        self._flush(force=False)

    def rewrite(self) -> None:
        self._flush(force=True)
        self._start("close", self._file)
        self._file, self._unsynced = [], False
        self.rewrites += 1

    def look(self) -> Look:
        return Look(self.time_s, "run", not self._syncs(), self.fails, self.rewrites)

    def _syncs(self) -> bool:
        return any(kind == "fsync" for kind, _, _ in self._jobs)

    def _flush(self, *, force: bool) -> None:
        if self._buffer:
            if self._syncs() and not force:
                self._postponed_s = self.time_s if self._postponed_s is None else self._postponed_s
                if self.time_s - self._postponed_s < 2:
                    return
            self._file += self._buffer
            self._buffer, self._unsynced, self._postponed_s = [], True, None
        if self._unsynced and self.time_s - self._last_fsync_s >= 1:
            if not self._syncs():
                self._start("fsync", self._file)
                self._unsynced = False
            self._last_fsync_s = self.time_s

    def _start(self, kind: str, numbers: list[int]) -> None:
        self._jobs.append((kind, list(numbers), self.fsync_s))
        if self._busy_until_s is None:
            self._busy_until_s = self.time_s + self.fsync_s


EVENTS = st.sampled_from(["nothing", "nothing", "nothing", "write", "rewrite", "slow", "fast"])
QUIET = [(0.1, "nothing")]


@settings(max_examples=400)
@given(
    before=st.lists(st.tuples(st.floats(0.001, 0.4), EVENTS), max_size=12),
    during=st.lists(st.tuples(st.floats(0.001, 0.15), EVENTS), max_size=30),
    looks_each=st.integers(1, 4),
)
# A new file, while the old one is still being synced.
@example([], [*QUIET * 3, (0.1, "slow"), (0.1, "rewrite")], 1)
@example([(0.1, "slow"), (0.1, "rewrite")], [], 1)
# An fsync of what came before is under way.
@example([(0.6, "slow"), (0.1, "write"), (0.1, "nothing")], [], 1)
def test_what_is_believed_to_be_fsynced_is(
    before: list[tuple[float, str]], during: list[tuple[float, str]], looks_each: int
) -> None:
    engine = EverySec()
    numbers = iter(range(1, 1000))

    def happen(event: str) -> None:
        if event == "write":
            engine.write(next(numbers))
        elif event == "rewrite":
            engine.rewrite()
        elif event in ("slow", "fast"):
            engine.fsync_s = 1.5 if event == "slow" else 0.002

    for passed_s, event in before:
        happen(event)
        engine.turn(passed_s)
    engine.write(0)
    engine.turn(0.0)  # and the reply is sent
    loop = asyncio.new_event_loop()
    try:
        wait = _Wait("run", loop.create_future())
        for number, (passed_s, event) in enumerate([*during, *QUIET * 200]):
            happen(event)
            if number % looks_each == 0:
                if not wait.is_nudged:
                    engine.write(next(numbers))
                wait.see(engine.look())
                if wait.future.done():
                    assert wait.future.result() is None
                    assert 0 in engine.durable
                    return
            engine.turn(passed_s)
        pytest.fail("nothing happened any more, and still it was not believed")
    finally:
        loop.close()


def test_a_quiet_engine_is_believed_after_a_second() -> None:
    engine = EverySec()
    engine.fsync_s = 0.002
    loop = asyncio.new_event_loop()
    try:
        wait = _Wait("run", loop.create_future())
        engine.write(0)
        engine.turn(0.0)
        while not wait.future.done():
            wait.see(engine.look())
            engine.turn(wait.pause_s())
        assert wait.future.result() is None
        assert 0 in engine.durable
        assert engine.time_s < 101.5
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(0, True, "run", False), (0.5, True, "run", True)], "cannot write its AOF"),
        ([(0, True, "run", False), (0.5, True, "another", False)], "restarted"),
        ([(0, True, "another", False)], "restarted"),
    ],
)
def test_what_ends_a_wait_in_doubt(looks: list[tuple[float, bool, str, bool]], told: str) -> None:
    loop = asyncio.new_event_loop()
    try:
        wait = _Wait("run", loop.create_future())
        for time_s, is_idle, run, fails in looks:
            wait.see(Look(time_s, run, is_idle, fails, 0))
        assert told in (wait.future.result() or "")
    finally:
        loop.close()


@pytest.mark.parametrize("gap_s", [0.95, -0.5])
def test_a_gap_in_the_looking_begins_anew(gap_s: float) -> None:
    """A second is enough for one fsync to fail and another to succeed."""
    loop = asyncio.new_event_loop()
    try:
        wait = _Wait("run", loop.create_future())
        times = [10.0, 10.5, 10.5 + gap_s, *(10.5 + gap_s + each for each in (0.2, 0.5, 0.9, 1.2, 1.3))]
        for time_s in times:
            wait.see(Look(time_s, "run", True, False, 0))
        assert not wait.future.done()
    finally:
        loop.close()


# ---- the watch


def said(time_s: float) -> Reply:
    fields = {
        "run_id": "run",
        "server_time_usec": round(time_s * 1e6),
        "aof_pending_bio_fsync": 0,
        "aof_last_write_status": "ok",
        "aof_rewrites": 0,
    }
    return "".join(f"{name}:{value}\r\n" for name, value in fields.items()).encode()


async def test_a_clock_that_was_set_back_is_not_gone_by() -> None:
    """No fsync is due until it has caught up: `passed` must not end before."""
    loop = asyncio.get_running_loop()
    set_back_s = 0.0

    async def ask(request: bytes, count: int) -> list[Reply]:
        return [b"OK", said(loop.time() - set_back_s)][-count:]

    watch = FsyncWatch(ask, lambda: b"nudge")
    assert await watch.passed("run") is None
    set_back_s = 3600.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await watch.passed("run")
    await watch.close()


async def test_what_cannot_be_seen_is_not_believed() -> None:
    async def ask(request: bytes, count: int) -> list[Reply]:
        replies: list[Reply] = [b"OK", b"run_id:run\r\n"]
        return replies[-count:]

    assert "could not be seen" in str(await FsyncWatch(ask, lambda: b"nudge").passed("run"))


# ---- the store, on an engine whose WAITAOF answers early


async def test_everysec_reaches_the_disk_before_the_acknowledgement() -> None:
    with started("valkey", "aof-everysec") as engine, hands_on(engine) as hands:
        async with open_store(address(engine), durability="fsynced") as store:
            loop = asyncio.get_running_loop()
            before_s = loop.time()
            receipts = await asyncio.gather(*(store.append(f"s{n}", HELLO, turn="t") for n in range(40)))
            assert loop.time() - before_s > 1.0
            assert {receipt.durability for receipt in receipts} == {Durability.FSYNCED}
            append = asyncio.create_task(store.append("s0", HELLO))
            await asyncio.sleep(0.3)
            hands.bgrewriteaof()
            assert (await append).last == 2
            assert loop.time() - before_s > 2.4, "the rewrite made the wait begin anew"


async def test_an_engine_that_dies_before_its_fsync_leaves_the_outcome_unknown() -> None:
    with started("valkey", "aof-everysec") as engine:
        async with open_store(address(engine), durability="fsynced") as store:
            append = asyncio.create_task(store.append("s", HELLO, turn="t"))
            await asyncio.sleep(0.4)
            engine.kill()
            engine.start()
            with pytest.raises(OutcomeUnknown, match="retry with the same turn id"):
                await append
            assert (await store.append("s", HELLO, turn="t")).last == 1
            assert await texts(store, "s") == ["hello"]


async def test_other_settings_are_noticed_while_it_waits() -> None:
    with started("valkey", "aof-everysec") as engine:
        assert isinstance(engine, Reconfigurable)
        async with open_store(address(engine), durability="fsynced") as store:
            engine.reconfigure("aof-always")
            assert (await store.append("s", HELLO)).durability is Durability.FSYNCED


async def test_while_a_slot_moves_only_what_was_written_waits_for_its_fsync() -> None:
    """What a node refuses is not written, and says so. What one has taken ends with the store."""
    with started("valkey-cluster", "aof-everysec") as engine:
        assert isinstance(engine, RedisClusterEngine)
        slot = str(slot_of(b"smoved"))
        source, target = sorted(engine.primaries(), key=lambda node: not engine.owns(node, int(slot)))[:2]
        store = await open_store(engine.endpoint.url, durability="fsynced", timeout_s=3.0)
        await store.append("moved", HELLO, turn="1")
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, "10")
        assert isinstance(keys, list)
        for key in keys[1:]:
            source.ask("MIGRATE", ports.HOST, str(target.port), str(key), "0", "5000")
        with pytest.raises(NotWritten, match="TRYAGAIN"):
            await store.append("moved", HELLO, turn="2")
        source.ask("MIGRATE", ports.HOST, str(target.port), str(keys[0]), "0", "5000")
        append = asyncio.create_task(store.append("moved", HELLO, turn="2"))
        shards = store._servers._shards  # type: ignore[attr-defined]
        while not any(shard._watch._waits for shard in shards.values()) and not append.done():
            await asyncio.sleep(0.001)
        await store.close()
        with pytest.raises(OutcomeUnknown, match="closed"):
            await append
