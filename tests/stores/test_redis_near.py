"""A thread that calls alone talks to the engine itself (`recollect.near`), and falls back on the store's loop."""

import asyncio
import contextlib
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from recollect import (
    Conflict,
    EngineUnavailable,
    Message,
    NotFound,
    NotWritten,
    OutcomeUnknown,
    Store,
    StoreReplaced,
    TurnReused,
)
from recollect.stores.redis.near import NearWire, RedisNear
from recollect.sync import SyncStore, open_store
from recollect.verify.engines import Engine, Pausable
from recollect.witness import remembered_by
from tests.interrupts import Interrupts
from tests.stores.redis_places import address, hands_on, new_prefix, started
from tests.stores.test_redis_rights import as_user


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with started("redis@7", "none") as running:
        yield running


@pytest.fixture
def store(engine: Engine) -> Iterator[SyncStore]:
    with open_store(address(engine)) as opened:
        opened.append("warm", say("the first call may have to take the long way"))
        yield opened


FILES = (
    "recollect/sync.py",
    "recollect/waiting.py",
    "recollect/near.py",
    "recollect/near_socket.py",
    "redis/near.py",
)
"""Between a caller and its answer."""


def say(text: str) -> list[Message]:
    return [Message("user", text)]


def texts(store: SyncStore, session: str = "s") -> list[str]:
    return [item.message.text if isinstance(item.message, Message) else "" for item in store.history(session)]


class LongWays:
    """Counts the calls that go through the loop."""

    def __init__(self, store: SyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        wait = store._wait

        def counted(work: Any) -> Any:
            self.taken += 1
            return wait(work)

        monkeypatch.setattr(store, "_wait", counted)


def test_every_call_can_be_made_without_the_loop(store: SyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = LongWays(store, monkeypatch)
    first = store.append("s", say("a"), turn="t")
    assert store.append("s", say("a"), turn="t") == first
    with pytest.raises(TurnReused):
        store.append("s", say("b"), turn="t")
    with pytest.raises(Conflict):
        store.append("s", say("b"), expect=7)
    store.append_many({"s": say("b"), "other": say("c")})
    assert texts(store) == ["a", "b"]
    assert len(store.history("s", after=1)) == len(store.history("s", last=1)) == 1
    stored = store.history("s")[0].message
    assert isinstance(stored, Message)
    assert store.find("s", stored.id) is not None
    store.retract("s", 1)
    with pytest.raises(NotFound):
        store.retract("s", 9)
    store.replace("s", say("c"))
    store.annotate("s", {"title": "tea"})
    assert store.describe("s").metadata == {"title": "tea"}
    assert store.fork("s", "new").session == "new"
    assert store.position("s") == store.position("new")
    store.forget("s")
    assert texts(store) == []
    assert ways.taken == 0


def test_a_long_history_needs_no_loop(store: SyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("s", [Message("user", f"{number} {'x' * 500}") for number in range(3_000)])
    ways = LongWays(store, monkeypatch)
    assert len(store.history("s")) == 3_000
    assert ways.taken == 0


def test_an_engine_that_has_forgotten_its_scripts_gets_them_again(engine: Engine, store: SyncStore) -> None:
    with hands_on(engine) as hands:
        hands.script_flush()
    assert store.append("s", say("a")).last == 1
    assert texts(store) == ["a"]


def test_a_closed_connection_is_replaced_and_the_pool_loses_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than the pool has connections."""
    with open_store(address(engine), pool_size=3) as store, hands_on(engine) as hands:
        store.append("s", say("0"))
        for number in range(1, 8):
            for client in hands.client_list():
                if client["id"] != str(hands.client_id()):
                    hands.client_kill_filter(_id=client["id"])
            hands.ping()  # by now they are closed
            store.append("s", say(str(number)))
            store.position("s")  # a new connection is there now, and is borrowed
        ways = LongWays(store, monkeypatch)
        assert texts(store) == [str(number) for number in range(8)]
        assert ways.taken == 0


def test_a_caller_interrupted_while_it_borrows_costs_the_pool_no_connection(store: SyncStore) -> None:
    """What it asked for comes after it has gone; the next caller asks again."""

    async def two_reads(far: Store) -> None:
        await asyncio.gather(far.history("warm"), far.history("warm"))

    near: Any = store._near
    store.run(two_reads)  # two connections are idle
    near._server.disconnect()
    asked = [asyncio.run_coroutine_threadsafe(near._server._borrow(), store._loop) for _ in range(2)]
    for each in asked:
        each.result()
    assert len(near._server._far.shard.pool._lent) == 1
    assert texts(store, "warm") != []


def test_a_lost_connection_leaves_the_outcome_unknown_and_a_retry_stores_once(
    store: SyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine has the request; the connection is gone before the reply is read."""
    wait = NearWire.ask

    def broken(self: NearWire, request: bytes, count: int, deadline: float) -> Any:
        wait(self, request, count, deadline)
        self._socket._socket.shutdown(2)
        return wait(self, request, count, deadline)

    monkeypatch.setattr(NearWire, "ask", broken)
    with pytest.raises(OutcomeUnknown, match="same turn id"):
        store.append("s", say("a"), turn="t")
    monkeypatch.undo()
    assert store.append("s", say("a"), turn="t").last == 1
    assert texts(store) == ["a"]


def test_a_silent_engine_costs_one_time_limit(engine: Engine, store: SyncStore) -> None:
    """The loop's limit stays at ten seconds: whoever waits for it too is seen."""
    assert isinstance(engine, Pausable)
    near: Any = store._near
    near._server._timeout_s = 0.2
    near._store._options = msgspec.structs.replace(near._store._options, timeout_s=0.2)
    store.append("s", say("a"))
    engine.pause()
    try:
        with pytest.raises(EngineUnavailable, match=r"no answer within 0\.2 s"):
            store.history("s")
    finally:
        engine.resume()
    near._server._timeout_s = 10.0
    assert store.position("s") == 1
    assert store.position("s") == 1  # with a wire of its own again
    near._server._timeout_s = 0.2
    engine.pause()
    try:
        with pytest.raises(OutcomeUnknown, match=r"within 0\.2 s"):
            store.append("s", say("b"), turn="t")
    finally:
        engine.resume()
    near._server._timeout_s = 10.0
    assert store.append("s", say("b"), turn="t").last == 2


def test_an_interrupted_caller_leaves_no_answer_to_the_next(
    engine: Engine, store: SyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(engine, Pausable)
    assert isinstance(store._near, RedisNear)
    store.append("s", say("a"))

    def interrupted(events: "select.poll", deadline: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("recollect.near_socket.wait_until", interrupted)
    engine.pause()
    try:
        with pytest.raises(KeyboardInterrupt):
            store.append("other", say("b"))
        wire = store._near._server._wire
        assert wire is not None
        assert not wire.is_usable, "the answer is still to come"
    finally:
        engine.resume()
    monkeypatch.undo()
    assert texts(store) == ["a"]
    assert texts(store, "other") in ([], ["b"])


def test_an_emptied_engine_is_noticed() -> None:
    with started("redis@7", "none") as engine, open_store(address(engine)) as store:
        store.append("s", say("a"))
        with hands_on(engine) as hands:
            hands.flushall()
        with pytest.raises(StoreReplaced):
            store.append("s", say("b"))
        with pytest.raises(StoreReplaced):
            store.history("s")


def test_after_a_script_was_denied_nothing_is_written_either_way(engine: Engine) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        rules = [f"~{prefix}:*", "+@all"]
        with open_store(as_user(engine, hands, prefix, *rules)) as store:
            store.append("s", say("a"))
            hands.execute_command("ACL", "SETUSER", prefix, "-hset")
            with pytest.raises((NotWritten, OutcomeUnknown)):
                store.append("s", say("b"), turn="t")
            for _ in range(2):
                with pytest.raises(NotWritten, match="safe to retry once"):
                    store.append("s", say("c"))
            hands.execute_command("ACL", "SETUSER", prefix, "+hset")
            store.append("s", say("c"))


def test_a_small_pool_lends_nothing(engine: Engine) -> None:
    with open_store(address(engine), pool_size=2) as store:
        assert store._near is None
        assert store.append("s", say("a")).last == 1


def test_threads_that_call_at_once_are_all_served(store: SyncStore) -> None:
    def write(writer: int) -> None:
        for number in range(50):
            store.append(f"s{number}", say(f"{writer}"), turn=f"{writer} {number}")

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(sorted(texts(store, f"s{number}")) == ["0", "1", "2", "3"] for number in range(50))


def test_the_witness_hears_of_it(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(address(engine), witness=tmp_path / "witness") as store:
        store.append("s", say("a"))
        ways = LongWays(store, monkeypatch)
        for number in range(3):
            store.append("s", say(str(number)))
        assert ways.taken == 0
    remembered = remembered_by(tmp_path / "witness")
    assert remembered is not None
    assert remembered[1] is not None
    assert remembered[1].sequence == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a coroutine that never began
@pytest.mark.parametrize("near", [True, False], ids=["near", "through the loop"])
def test_a_caller_interrupted_at_any_step_holds_nobody_up(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, near: bool
) -> None:
    """As by a signal whose handler raises."""
    with open_store(address(engine)) as store:
        store.append("s", say("a"))
        if not near:
            monkeypatch.setattr(store, "_near", None)
        for step in range(1, 2_000):
            interrupts = Interrupts(step, FILES)
            with contextlib.suppress(KeyboardInterrupt), interrupts:
                store.position("s")
            if interrupts.left > 0:
                break
            later: SimpleQueue[int] = SimpleQueue()
            threading.Thread(target=lambda later=later: later.put(store.position("s")), daemon=True).start()
            assert later.get(timeout=30) == 1, f"interrupted at step {step}"
        else:
            pytest.fail("the call has more steps than were tried")
        assert step > 10
        assert not store._under_way
        if near:
            ways = LongWays(store, monkeypatch)
            store.position("s")  # may have to borrow
            store.position("s")
            assert ways.taken == 0
        assert store._near is None or not store._near._turns._is_taken()  # type: ignore[attr-defined]
