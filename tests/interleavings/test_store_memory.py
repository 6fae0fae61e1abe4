"""What a store remembers: every change that others could see changes the fingerprint, and nothing else does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from recollect.verify.explore.interleavings.store_memory import StoreMemory


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Store:
    def __init__(self) -> None:
        self.cache: dict[str, list[int]] = {"s": [1]}
        self.queue: deque[int] = deque([1])
        self.seen = {1}
        self.inner = Slotted()
        self.lock = asyncio.Lock()
        self.count = 0
        self.itself = self


def _lock(store: Store) -> None:
    asyncio.run(store.lock.acquire())


CHANGES: dict[str, Callable[[Store], Any]] = {
    "a counter": lambda store: setattr(store, "count", 1),
    "a list in a dict": lambda store: store.cache["s"].append(2),
    "a queue": lambda store: store.queue.popleft(),
    "a set": lambda store: store.seen.add(2),
    "a slot of another object": lambda store: setattr(store.inner, "value", 1),
    "a lock": _lock,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change: Callable[[Store], Any]) -> None:
    store = Store()
    memory = StoreMemory(store)
    before = memory.fingerprint()
    assert memory.fingerprint() == before
    change(store)
    assert memory.fingerprint() != before


def test_globals_of_its_module_are_part_of_it() -> None:
    memory = StoreMemory(Store())
    before = memory.fingerprint()
    CHANGES["another"] = CHANGES["a set"]
    try:
        assert memory.fingerprint() != before
    finally:
        del CHANGES["another"]
    assert memory.fingerprint() == before
