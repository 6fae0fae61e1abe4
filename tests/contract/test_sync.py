"""The synchronous facade: the same store, without async."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest

from recollect import (
    Conflict,
    Message,
    OutcomeUnknown,
    RecollectError,
    SessionState,
    Store,
    StoreClosed,
    Stored,
    sync,
)
from recollect.sync import SyncStore, open_store
from recollect.witness import remembered_by
from tests.contract.conftest import Place
from tests.interrupts import Interrupts


def test_the_facade_does_what_the_store_does(place: Place, session: str) -> None:
    with open_store(place.url) as store:
        receipt = store.append(session, [Message("user", "a")], turn="t")
        assert store.append(session, [Message("user", "a")], turn="t") == receipt
        with pytest.raises(Conflict):
            store.append(session, [Message("user", "b")], expect=7)
        assert [item.sequence for item in store.history(session, last=5)] == [1]
        assert session in list(store.sessions())
        assert store.state(session) is SessionState.LIVE
        assert receipt.durability is store.durability
        store.forget(session)
        assert store.history(session) == []
        assert store.sweep() >= 0
    with pytest.raises(RecollectError, match="closed"):
        store.history(session)


def test_threads_share_a_store(place: Place, session: str) -> None:
    with open_store(place.url) as store:

        def write(writer: int) -> None:
            for number in range(20):
                store.append(session, [Message("user", f"{writer}:{number}")])

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.history(session)) == 80


ROUNDS = {"sqlite": 30, "redis": 8, "postgres": 8}
THREADS = 16


def test_closing_leaves_no_thread_waiting(place: Place, session: str) -> None:
    """Every call that another thread has under way, or makes just then, ends: with its result, or with an error."""
    for _ in range(ROUNDS[place.name]):
        store = open_store(place.url)
        started = threading.Barrier(THREADS + 1)
        outcomes: list[str] = []

        def use(store: SyncStore, started: threading.Barrier, outcomes: list[str], number: int) -> None:
            started.wait(20)
            for turn in range(50):
                try:
                    if number % 4 == 0:
                        store.history(session, last=20)
                    else:
                        store.append(session, [Message("user", f"{number}:{turn}")])
                except RecollectError as error:
                    outcomes.append(str(error))
                    return
            outcomes.append("done")

        threads = [
            threading.Thread(target=use, args=(store, started, outcomes, number), daemon=True)
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        started.wait(20)
        store.close()
        with pytest.raises(RecollectError, match="closed"):
            store.state(session)
        for thread in threads:
            thread.join(20)
        assert [thread.name for thread in threads if thread.is_alive()] == []
        assert len(outcomes) == THREADS
        assert [outcome for outcome in outcomes if outcome != "done" and "closed" not in outcome] == []


def test_what_was_under_way_when_the_store_was_closed_is_stored(place: Place, session: str) -> None:
    store = open_store(place.url)
    acknowledged: list[int] = []
    began = threading.Event()

    def write() -> None:
        with contextlib.suppress(RecollectError):
            while True:
                began.set()
                acknowledged.append(store.append(session, [Message("user", "x")]).last)

    threads = [threading.Thread(target=write, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    began.wait(20)
    closers = [threading.Thread(target=store.close, daemon=True) for _ in range(3)]
    for thread in closers:
        thread.start()
    for thread in (*closers, *threads):
        thread.join(20)
        assert not thread.is_alive()
    with open_store(place.url) as again:
        found = {item.sequence for item in again.history(session)}
    assert set(acknowledged) <= found


CLOSING = ("recollect/sync.py", "recollect/near.py", "recollect/waiting.py")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a coroutine that never began
def test_closing_that_is_interrupted_leaves_no_thread_waiting(place: Place, session: str) -> None:
    """As by a signal whose handler raises, at any step: it goes on by itself, or once it is closed again."""
    for step in range(1, 200):
        store = open_store(place.url)
        written, began = 0, threading.Event()

        def write(store: SyncStore = store, began: threading.Event = began, step: int = step) -> None:
            nonlocal written
            with contextlib.suppress(StoreClosed):
                while True:
                    store.append(f"{session} {step}", [Message("user", "x")])
                    written += 1
                    began.set()

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        assert began.wait(20)
        interrupts = Interrupts(step, CLOSING)
        with contextlib.suppress(KeyboardInterrupt), interrupts:
            store.close()
        again = threading.Thread(target=store.close, daemon=True)
        again.start()
        for each in (again, thread):
            each.join(30)
            assert not each.is_alive(), f"interrupted at step {step}"
        with open_store(place.url) as other:
            assert len(other.history(f"{session} {step}")) == written
        if interrupts.left > 0:
            break
    else:
        pytest.fail("closing has more steps than were tried")
    assert step > 3


def test_a_signal_s_handler_may_close_at_any_step_of_a_call(
    place: Place, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the loop's thread, which must not wait for the caller that it has interrupted."""
    monkeypatch.setattr(sync, "GRACE_S", 0.0)
    for step in range(1, 200):
        store = open_store(place.url)
        store._timeout_s = 0.05
        ended: SimpleQueue[tuple[int, bool | None]] = SimpleQueue()

        def append(
            store: SyncStore = store,
            ended: "SimpleQueue[tuple[int, bool | None]]" = ended,
            step: int = step,
        ) -> None:
            stored: bool | None = False
            interrupts = Interrupts(step, CLOSING, store.close)
            with contextlib.suppress(StoreClosed), interrupts:
                try:
                    store.append(f"{session} {step}", [Message("user", "x")])
                    stored = True
                except OutcomeUnknown:  # an append that outlives the store's short limit is abandoned
                    stored = None
            store.close()
            ended.put((interrupts.left, stored))

        threading.Thread(target=append, daemon=True).start()
        left, stored = ended.get(timeout=30)
        with open_store(place.url) as other:
            assert stored is None or len(other.history(f"{session} {step}")) == stored
        if left > 0:
            break
    else:
        pytest.fail("an append has more steps than were tried")
    assert step > 3


def test_what_ends_a_program_ends_only_its_caller(place: Place, session: str) -> None:
    async def leaves(store: Store) -> None:
        raise SystemExit(3)

    outcomes: SimpleQueue[BaseException] = SimpleQueue()

    def run(store: SyncStore) -> None:
        try:
            store.run(leaves)
        except SystemExit as error:
            outcomes.put(error)

    with open_store(place.url) as store:
        threading.Thread(target=run, args=(store,), daemon=True).start()
        assert isinstance(outcomes.get(timeout=30), SystemExit)
        assert store.position(session) == 0


def test_closing_on_the_loop_s_own_thread_does_not_wait_for_itself(place: Place, session: str) -> None:
    store = open_store(place.url)

    async def closes(inner: Store) -> int:
        store.close()
        return await inner.position(session)

    assert store.run(closes) == 0
    store.close()
    with pytest.raises(StoreClosed):
        store.position(session)


ENDED = """
import atexit, sys, threading
from recollect import Message
from recollect.sync import open_store

witness = {witness!r}
store = open_store({url!r}, witness=witness)
atexit.register(store.close)
store.append({session!r}, [Message("user", "x")] * 500)


def use(number):
    threading.main_thread().join()
    for _ in range(5):
        store.append({session!r}, [Message("user", "x")])
        assert len(store.history({session!r})) > 500
    sys.stdout.write("used\\n")


for number in range(4):
    threading.Thread(target=use, args=[number]).start()
"""


def test_threads_go_on_when_the_main_one_has_ended(place: Place, session: str, tmp_path: Path) -> None:
    """Python's executors take no more work then; and at exit, when many a program closes its store."""
    witness = tmp_path / "witness"
    program = ENDED.format(url=place.url, session=session, witness=str(witness))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "used\n" * 4, "")
    remembered = remembered_by(witness)
    assert remembered is not None
    assert remembered[1] is not None
    assert remembered[1].sequence == 520, "it was closed"


def test_a_call_that_does_not_end_is_given_up_when_the_store_is_closed(tmp_path: Path) -> None:
    """Not one of ours, which all have a limit: a store of somebody else's, under the same facade."""

    class Endless:
        async def history(self, session: str, **window: object) -> list[Stored]:
            await asyncio.Event().wait()
            return []

        async def close(self) -> None:
            pass

    async def opened() -> Store:
        return cast(Store, Endless())

    store = SyncStore(opened(), timeout_s=0.1)
    outcomes: list[Exception] = []

    def read() -> None:
        try:
            store.history("s")
        except RecollectError as error:
            outcomes.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not store._under_way and time.monotonic() < deadline:
        time.sleep(0.001)
    store.close()
    thread.join(20)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown]


def in_a_fork(work: Callable[[], None]) -> int:
    """Exit code of a child that does the work; one that hangs is ended by its alarm, and has a code too."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_may_close_its_copy_and_the_parent_s_goes_on(place: Place, session: str) -> None:
    with open_store(place.url) as store:
        store.append(session, [Message("user", "before")])

        def leave() -> None:
            with pytest.raises(RecollectError, match="fork"):
                store.history(session)
            store.close()
            with pytest.raises(RecollectError, match="fork"):
                store.append(session, [Message("user", "from the fork")])

        assert in_a_fork(leave) == 0
        store.append(session, [Message("user", "after")])
        assert [item.sequence for item in store.history(session)] == [1, 2]
