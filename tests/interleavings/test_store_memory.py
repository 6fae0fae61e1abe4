"""What a store remembers: every change that others could see changes the fingerprint, and nothing else does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from recollect.verify.explore.interleavings.store_memory import StoreMemory
from recollect.verify.explore.interleavings.world import SessionNames


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


@dataclass(frozen=True)
class Settings:
    name: str = "one"
    limit: int = 3


class Store:
    def __init__(self) -> None:
        self.cache: dict[str, list[int]] = {"s": [1]}
        self.queue: deque[int] = deque([1])
        self.seen = {1}
        self.inner = Slotted()
        self.lock = asyncio.Lock()
        self.count = 0
        self.settings = Settings()
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
    "a frozen object": lambda store: object.__setattr__(store.settings, "limit", 4),
    "what a frozen object keeps": lambda store: vars(store.settings).update(cached=1),
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


def test_what_is_kept_for_earlier_schedules_does_not_count() -> None:
    names = SessionNames("t")
    store = Store()
    memory = StoreMemory(store, is_past=names.is_past)
    names.schedule = 1
    session = names(0)
    before = memory.fingerprint()
    store.cache[session] = [1]
    during = memory.fingerprint()
    assert during != before
    names.schedule = 2
    assert memory.fingerprint() == before
    store.cache[session].append(2)
    assert memory.fingerprint() == before
    store.cache[names(0)] = [1]
    assert memory.fingerprint() not in (before, during)


@pytest.mark.parametrize("key", ["{}", b"{}", ("turn", "{}"), 7])
def test_a_key_names_an_earlier_session_if_it_contains_its_id(key: Any) -> None:
    names = SessionNames("t")
    names.schedule = 1
    session = names(0)
    if isinstance(key, tuple):
        key = (key[0], session)
    elif isinstance(key, bytes):
        key = session.encode()
    elif isinstance(key, str):
        key = f"chat:{session}"
    assert not names.is_past(key)
    names.schedule = 11
    assert names.is_past(key) == (key != 7)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({"count": 1}, True),
        ({"count": True}, True),
        ({"count": 140_364_364_439_872}, False),
        ({"count": -5000}, False),
        ({"name": "broken"}, True),
        ({"name": "turn-7001"}, False),
        ({"name": None}, True),
    ],
)
def test_ids_and_times_are_no_part_of_the_shape(change: dict[str, Any], counts: bool) -> None:
    store = Store()
    vars(store).update({"count": 140_364_364_348_096, "name": "turn-6001"})
    memory = StoreMemory(store, only_shape=True)
    before = memory.fingerprint()
    vars(store).update(change)
    assert (memory.fingerprint() != before) is counts


def test_what_is_ours_is_not_followed() -> None:
    """Our own stores, whose package is ours, keep connections that we hold."""

    class Held:
        number = 0

    Held.__module__ = "recollect.verify.explore.interleavings.held_connection"
    store, held = OfOurPackage(), Held()
    store.held = held
    memory = StoreMemory(store)
    before = memory.fingerprint()
    held.number = 1
    assert memory.fingerprint() == before
    store.count = 1
    assert memory.fingerprint() != before


class OfOurPackage:
    held: object
    count = 0


OfOurPackage.__module__ = "recollect.stores.some"
