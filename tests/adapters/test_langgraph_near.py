"""A thread that calls a saver alone talks to SQLite or PostgreSQL itself, and falls back on the saver's loop."""

import asyncio
import contextlib
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import asyncpg
import pytest
from langgraph.checkpoint.base import empty_checkpoint

from recollect import EngineUnavailable, OutcomeUnknown, Unreadable
from recollect.adapters import carrying
from recollect.adapters.langgraph import RecollectSaver
from recollect.verify.engines import Pausable
from recollect.verify.host.waiting import wait_until
from tests.contract.conftest import Place, own_place
from tests.interrupts import Interrupts

__all__ = ["own_place"]

FILES = (
    "recollect/waiting.py",
    "recollect/near.py",
    "recollect/near_socket.py",
    "postgres/near.py",
    "postgres/near_wire.py",
    "langgraph/saver.py",
    "langgraph/own_loop.py",
    "langgraph/shelf_postgres.py",
    "langgraph/shelf_sqlite.py",
)

# Work that never began.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


BOTH = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
SQLITE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
POSTGRES = pytest.mark.parametrize("place", ["postgres"], indirect=True)
OWN_POSTGRES = pytest.mark.parametrize("own_place", ["postgres"], indirect=True)


@pytest.fixture
def saver(place: Place) -> Iterator[RecollectSaver]:
    with RecollectSaver(place.url) as opened:
        yield opened


@pytest.fixture
def thread() -> Any:
    return {"configurable": {"thread_id": f"thread-{uuid.uuid4()}", "checkpoint_ns": ""}}


class LongWays:
    """Counts the calls that go through the loop."""

    def __init__(self, saver: RecollectSaver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = 0
        for name in ("wait", "reach"):
            monkeypatch.setattr(saver._loop, name, self._counted(getattr(saver._loop, name)))

    def _counted(self, way: Any) -> Any:
        def counted(work: Any) -> Any:
            self.taken += 1
            return way(work)

        return counted


def step(saver: RecollectSaver, config: Any, number: int, **values: Any) -> Any:
    """Puts a checkpoint in which these channels are new; `old` is what stays from the one before."""
    old = values.pop("old", {})
    versions = {**dict.fromkeys(old, "1"), **dict.fromkeys(values, str(number))}
    checkpoint: Any = {**empty_checkpoint(), "id": f"{number:04}", "channel_versions": versions}
    checkpoint["channel_values"] = {**old, **values}
    return saver.put(config, checkpoint, {"step": number}, dict.fromkeys(values, str(number)))


def values_of(saver: RecollectSaver, thread: Any) -> Any:
    found = saver.get_tuple(thread)
    return None if found is None else found.checkpoint["channel_values"]


def hands_on(place: Place, statement: str) -> Any:
    """What an administrator does in the database."""

    async def run() -> Any:
        connection = await asyncpg.connect(place.url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


OTHERS = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"


@BOTH
def test_every_call_can_be_made_without_the_loop(
    saver: RecollectSaver, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = LongWays(saver, monkeypatch)
    assert saver.get_tuple(thread) is None
    old = {"long": "x" * 500, "huge": "y" * 3_000_000, "half": b"\0\xff", "none": None, "": 0}
    first = step(saver, thread, 1, **old)
    assert values_of(saver, thread) == old
    second = step(saver, first, 2, said=["a"], old=old)
    saver.put_writes(second, [("said", "b"), ("said", None)], "task", "path")
    saver.put_writes(second, [], "nothing")
    saver._shelf._homes = type(saver._shelf._homes)()  # type: ignore[attr-defined]  # as of a new saver
    third = step(saver, second, 3, said=["a", "b"], old=old)
    assert values_of(saver, thread) == {**old, "said": ["a", "b"]}
    found = saver.get_tuple(second)
    assert found is not None
    assert found.parent_config == first
    assert found.pending_writes == [("task", "said", "b"), ("task", "said", None)]
    assert ways.taken == 0
    assert [one.config for one in saver.list(thread)] == [third, second, first]


@BOTH
def test_a_caller_in_an_event_loop_needs_no_other(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def called() -> Any:
        with RecollectSaver(place.url) as saver:
            ways = LongWays(saver, monkeypatch)
            step(saver, thread, 1, said="here")
            assert ways.taken == 0
            return await saver.aget_tuple(thread)

    assert asyncio.run(called()).checkpoint["channel_values"] == {"said": "here"}


@BOTH
def test_a_caller_interrupted_at_any_step_holds_nobody_up(
    saver: RecollectSaver, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a signal whose handler raises. What comes after it is acknowledged, and stays."""
    config = step(saver, thread, 1, said="first")
    for number in range(2, 2_000):
        interrupts = Interrupts(number - 1, FILES)
        with contextlib.suppress(KeyboardInterrupt), interrupts:
            saver.put_writes(config, [("said", "a"), ("said", "b")], f"task {number}")
        if interrupts.left > 0:
            break
        later: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(
            target=lambda later=later, number=number: later.put(step(saver, config, number, said=number)),
            daemon=True,
        ).start()
        assert later.get(timeout=30)["configurable"]["checkpoint_id"] == f"{number:04}", f"step {number - 1}"
        assert values_of(saver, thread) == {"said": number}
    else:
        pytest.fail("the call has more steps than were tried")
    assert number > 20
    found = saver.get_tuple(config)
    assert found is not None
    assert len(found.pending_writes or []) % 2 == 0, "what a task wrote is there whole, or not at all"
    ways = LongWays(saver, monkeypatch)
    step(saver, config, 9_999, said="last")
    assert ways.taken == 0


@SQLITE
async def test_while_commits_are_short_a_change_is_made_on_the_callers_own_event_loop(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await asyncio.to_thread(RecollectSaver, place.url) as saver:
        shelf: Any = saver._shelf
        ways = LongWays(saver, monkeypatch)
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        config = thread
        for number in range(1, 5):
            shelf._commit_s = 0.0  # however slow this disk is
            checkpoint, metadata, versions = _checkpoint(number)
            config = await saver.aput(config, checkpoint, metadata, versions)
            shelf._commit_s = 0.0
            await saver.aput_writes(config, [("said", number)], "task")
        assert ways.taken == 0
        assert others >= 8
        task.cancel()
        shelf._commit_s = 1.0
        await saver.aput(config, *_checkpoint(5))
        assert ways.taken == 1
        assert [one.metadata["step"] async for one in saver.alist(thread)] == [5, 4, 3, 2, 1]


@SQLITE
def test_what_an_interrupted_caller_left_open_takes_nothing_along(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not take its transaction back. What is acknowledged next is not taken back with it."""
    with RecollectSaver(place.url) as saver:
        config = step(saver, thread, 1, said="first")
        near: Any = saver._shelf
        near._near.execute("BEGIN IMMEDIATE")
        near._near.execute("DELETE FROM langgraph_checkpoints")
        ways = LongWays(saver, monkeypatch)
        step(saver, config, 2, said="second")
        assert ways.taken == 0
    with RecollectSaver(place.url) as saver:
        assert [one.metadata["step"] for one in saver.list(thread)] == [2, 1]


@SQLITE
def test_a_commit_of_which_nobody_knows_is_not_said_to_be_undone(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed in the middle, and the other way finds the file locked: that says nothing about the first."""
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    with RecollectSaver(place.url, timeout_s=1) as saver:
        config = step(saver, thread, 1, said="first")
        shelf: Any = saver._shelf
        near = shelf._near
        other = sqlite3.connect(place.url.removeprefix("sqlite:///"), isolation_level=None)

        class Failing:
            in_transaction = False

            def execute(self, statement: str, *values: Any) -> Any:
                near.execute(statement, *values)
                other.execute("BEGIN IMMEDIATE")
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error

        shelf._near = Failing()
        with pytest.raises(OutcomeUnknown):
            step(saver, config, 2, said="second")
        shelf._near = near
        other.close()
        assert values_of(saver, thread) == {"said": "second"}


# ---- PostgreSQL


@POSTGRES
def test_a_closed_connection_is_replaced_and_the_pool_loses_none(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than the pool has connections."""
    with RecollectSaver(place.url, pool_size=3) as saver:
        config = step(saver, thread, 0, said=0)
        for number in range(1, 8):
            hands_on(place, f"SELECT pg_terminate_backend(pid) {OTHERS}")
            config = step(saver, config, number, said=number)
        ways = LongWays(saver, monkeypatch)
        assert values_of(saver, thread) == {"said": 7}
        assert ways.taken == 0
        pool: Any = saver._shelf._pool  # type: ignore[attr-defined]
        assert pool._taken == 1


@POSTGRES
def test_a_caller_interrupted_while_it_borrows_costs_the_pool_no_connection(
    place: Place, thread: Any
) -> None:
    """What it asked for comes after it has gone; the next caller asks again."""
    with RecollectSaver(place.url) as saver:
        shelf: Any = saver._shelf
        loop = saver._loop._loop
        asked = [asyncio.run_coroutine_threadsafe(shelf._near._exchange(), loop) for _ in range(3)]
        for each in asked:
            each.result()
        assert shelf._pool._taken == 1
        step(saver, thread, 1, said="here")
        assert values_of(saver, thread) == {"said": "here"}


@POSTGRES
def test_a_small_pool_and_a_pooler_lend_nothing(place: Place, thread: Any) -> None:
    for url, size in ((place.url, 2), (_with(place.url, "prepared=no"), 8)):
        with RecollectSaver(url, pool_size=size) as saver:
            assert saver._shelf._near is None  # type: ignore[attr-defined]
            step(saver, thread, 1, said="here")
            assert values_of(saver, thread) == {"said": "here"}


@POSTGRES
def test_what_waits_for_a_lock_too_long_is_stopped(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be stored later, behind the caller's back."""
    monkeypatch.setattr(carrying, "PAUSES_S", ())
    with RecollectSaver(place.url) as saver:
        config = step(saver, thread, 1, said="first")
        shelf: Any = saver._shelf
        shelf._near._timeout_s = 0.2

        async def locked() -> int:
            connection = await asyncpg.connect(place.url)
            try:
                async with connection.transaction():
                    await connection.execute("LOCK TABLE langgraph_checkpoints")
                    given: Any = saver._row(config, *_checkpoint(2))
                    with pytest.raises(OutcomeUnknown):
                        await asyncio.to_thread(shelf.put_here, *given)
                    deadline = time.monotonic() + 10
                    waiting = 1
                    while waiting and time.monotonic() < deadline:
                        waiting = await connection.fetchval(
                            f"SELECT count(*) {OTHERS} AND wait_event_type = 'Lock'"
                        )
                    return waiting
            finally:
                await connection.close()

        assert asyncio.run(locked()) == 0
        assert values_of(saver, thread) == {"said": "first"}


@OWN_POSTGRES
def test_a_silent_engine_costs_a_read_one_time_limit(own_place: Place, thread: Any) -> None:
    assert isinstance(own_place.engine, Pausable)
    with RecollectSaver(own_place.url, timeout_s=5) as saver:
        step(saver, thread, 1, said="here")
        shelf: Any = saver._shelf
        shelf._near._timeout_s = 0.2
        own_place.engine.pause()
        started = time.monotonic()
        try:
            with pytest.raises(EngineUnavailable):
                saver.get_tuple(thread)
        finally:
            own_place.engine.resume()
        assert time.monotonic() - started < 4
        shelf._near._timeout_s = 5
        assert values_of(saver, thread) == {"said": "here"}


@OWN_POSTGRES
def test_an_error_of_the_engine_is_told_by_the_other_way(own_place: Place, thread: Any) -> None:
    with RecollectSaver(own_place.url) as saver:
        config = step(saver, thread, 1, said="here")
        hands_on(own_place, "ALTER TABLE langgraph_checkpoints ADD CONSTRAINT none CHECK (id <> '0002')")
        with pytest.raises(Exception, match="none"):
            step(saver, config, 2, said="refused")
        step(saver, config, 3, said="again")
        assert values_of(saver, thread) == {"said": "again"}
        hands_on(own_place, "UPDATE langgraph_checkpoints SET checksum = 'abcd'")
        with pytest.raises(Unreadable, match="0003"):
            saver.get_tuple(thread)


@OWN_POSTGRES
@pytest.mark.parametrize("way", ["here", "on the loop", "a thread's removal"])
def test_an_operator_who_ends_the_wait_for_a_standby_does_not_get_an_acknowledgement(
    own_place: Place, thread: Any, way: str
) -> None:
    """It is repeated, and waits again."""
    engine: Any = own_place.engine

    def names(standbys: str) -> None:
        engine.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        engine.ask("SELECT pg_reload_conf()")

    def ended(before: str) -> str:
        """Ends the wait of a commit on another connection than before; says on which."""
        waiting = f"SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid <> {before}"
        wait_until(lambda: bool(engine.ask(waiting)), 30, "no commit waits")
        pid = str(engine.ask(waiting)[0][0])
        engine.ask(f"SELECT pg_cancel_backend({pid})")
        return pid

    with RecollectSaver(own_place.url) as saver:
        config = step(saver, thread, 1, said="first")
        names("*")
        change = {
            "here": lambda: step(saver, config, 2, said="second"),
            "on the loop": lambda: asyncio.run(_put_on_a_loop(saver, config)),
            "a thread's removal": lambda: saver.delete_thread(thread["configurable"]["thread_id"]),
        }[way]
        caller = threading.Thread(target=change)
        caller.start()
        ended(ended("0"))
        names("")
        caller.join(30)
        assert not caller.is_alive()
        assert bool(saver.get_tuple(thread)) == (way != "a thread's removal")


async def _put_on_a_loop(saver: RecollectSaver, config: Any) -> None:
    await saver.aput(config, {**empty_checkpoint(), "id": "0002"}, {}, {})


@OWN_POSTGRES
def test_a_put_that_was_under_way_when_the_engine_died_is_not_said_to_be_undone(
    own_place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way cannot connect: that says nothing about the first."""
    monkeypatch.setattr(carrying, "PAUSES_S", (0.0,))
    with RecollectSaver(own_place.url) as saver:
        config = step(saver, thread, 1, said="first")
        socket: Any = saver._shelf._near._wire._socket  # type: ignore[attr-defined]
        receive = socket.receive

        def late(deadline: float) -> bytes:
            data: bytes = receive(deadline)
            own_place.engine.kill()
            raise ConnectionResetError(len(data))

        monkeypatch.setattr(socket, "receive", late)
        with pytest.raises(OutcomeUnknown):
            step(saver, config, 2, said="second")
        own_place.engine.start()
        assert values_of(saver, thread) == {"said": "second"}


@POSTGRES
def test_a_wire_that_ends_in_the_middle_of_an_answer(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was stored or not, it is stored again, and read whole."""
    with RecollectSaver(place.url) as saver:
        config = step(saver, thread, 1, said="x" * 200_000)
        socket: Any = saver._shelf._near._wire._socket  # type: ignore[attr-defined]
        receive = socket.receive

        def broken(deadline: float) -> bytes:
            data: bytes = receive(deadline)
            socket._socket.shutdown(2)
            return data[:100]

        monkeypatch.setattr(socket, "receive", broken)
        assert values_of(saver, thread) == {"said": "x" * 200_000}
        step(saver, config, 2, said="y")
        assert values_of(saver, thread) == {"said": "y"}


@POSTGRES
def test_answers_may_come_in_pieces_of_any_size(
    place: Place, thread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecollectSaver(place.url) as saver:
        step(saver, thread, 1, said="x" * 300)
        socket: Any = saver._shelf._near._wire._socket  # type: ignore[attr-defined]
        receive = socket.receive
        left = bytearray()

        def slowly(deadline: float) -> bytes:
            if not left:
                left.extend(receive(deadline))
            one = bytes(left[:1])
            del left[:1]
            return one

        monkeypatch.setattr(socket, "receive", slowly)
        ways = LongWays(saver, monkeypatch)
        assert values_of(saver, thread) == {"said": "x" * 300}
        assert ways.taken == 0


def _checkpoint(number: int) -> tuple[Any, Any, Any]:
    versions = {"said": str(number)}
    checkpoint: Any = {**empty_checkpoint(), "id": f"{number:04}", "channel_versions": versions}
    checkpoint["channel_values"] = {"said": number}
    return checkpoint, {"step": number}, versions


def _with(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"
