"""The synchronous facade: the same store, without async."""

import os
import signal
import threading
from collections.abc import Callable

import pytest

from recollect import Conflict, Message, RecollectError, SessionState
from recollect.sync import open_store
from tests.contract.conftest import Place


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
