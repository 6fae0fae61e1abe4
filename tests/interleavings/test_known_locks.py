"""Locks that the scheduler knows behave as those of `threading` do, and a store gets them wherever it makes one."""

from __future__ import annotations

import sys
import threading
import time
from types import ModuleType

import pytest

from recollect.verify.explore.interleavings.known_locks import KnownLock, adopt, known_locks


class Scheduler:
    """Lets somebody else release the lock whenever it is waited for."""

    def __init__(self) -> None:
        self.waits = self.pauses = 0

    def wait_for(self, lock: KnownLock) -> bool:
        self.waits += 1
        lock.release()
        return True

    def pause(self) -> None:
        self.pauses += 1


def test_a_lock_is_waited_for_once_it_is_taken() -> None:
    scheduler = Scheduler()
    lock = KnownLock(scheduler, reentrant=False)
    assert lock.acquire()
    assert lock.locked()
    assert not lock.acquire(blocking=False)
    assert scheduler.waits == 0
    assert lock.acquire()
    assert scheduler.waits == 1
    lock.release()
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        lock.release()


def test_a_reentrant_lock_is_free_when_it_was_given_back_as_often_as_taken() -> None:
    lock = KnownLock(Scheduler(), reentrant=True)
    with lock, lock:
        assert lock.locked()
    assert not lock.locked()


def test_a_condition_works_on_one() -> None:
    condition = threading.Condition(KnownLock(Scheduler(), reentrant=True))  # type: ignore[arg-type]
    with condition:
        assert not condition.wait(timeout=0.001)
        condition.notify_all()
    with pytest.raises(RuntimeError):
        condition.notify_all()


def test_only_code_of_the_store_gets_them() -> None:
    scheduler, real = Scheduler(), type(threading.Lock())
    with known_locks(scheduler, {__file__}):
        assert isinstance(threading.Lock(), KnownLock)
        assert isinstance(threading.RLock(), KnownLock)
        assert isinstance(threading.Condition()._lock, KnownLock)  # type: ignore[attr-defined]
    assert isinstance(threading.Lock(), real)
    with known_locks(scheduler, {"/somewhere/else.py"}):
        assert isinstance(threading.Lock(), real)


def test_locks_of_a_module_and_its_classes_are_taken_over() -> None:
    module = ModuleType("planted_module")
    sys.modules[module.__name__] = module
    try:
        text = "import threading\nfrom threading import RLock\nmine = threading.Lock()\nclass S:\n    own = RLock()\n"
        exec(text, vars(module))
        adopt(Scheduler(), module)
        assert isinstance(module.mine, KnownLock)
        assert isinstance(module.S.own, KnownLock)
        assert isinstance(module.RLock(), KnownLock)
    finally:
        del sys.modules[module.__name__]


def test_whoever_sleeps_lets_the_others_go_on_however_it_is_called() -> None:
    module, scheduler = ModuleType("planted_module"), Scheduler()
    exec("import time\nfrom time import sleep\n", vars(module))
    adopt(scheduler, module)
    with known_locks(scheduler, set()):
        module.sleep(0)
        module.time.sleep(0)
    assert scheduler.pauses == 2
    time.sleep(0)
    assert scheduler.pauses == 2
