"""What a store keeps in the process: a fingerprint of it, to tell whether a step changed anything that others see.

It follows containers, objects of the store's own package, and asyncio's and threading's primitives, but not the inside
of a driver (nobody can tell which of two equal connections a task got). The globals of the store's module count too.
What is kept for sessions of earlier schedules does not: nobody uses them any more.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

NODES_MAX = 5000
_PLAIN = (str, int, float, bytes, bool, type(None), complex)
_PLAIN_TYPES = frozenset(_PLAIN)
_CONSTANT = (*_PLAIN, Enum)
_SHAPES = frozenset((bool, type(None)))
_SMALL = range(-1000, 1000)
_DIGIT = re.compile(r"\d")
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_PRIMITIVES = frozenset({"asyncio.locks", "asyncio.queues", "threading"})
_IGNORED = ("_loop", "__weakref__", "__dict__")
_OURS = "recollect.verify."
"""Connections and tasks of ours, which our own stores hold."""

Way = Callable[[Any], int]


class StoreMemory:
    """Taken after every step, so what to do with each class is decided once."""

    def __init__(
        self, *roots: Any, is_past: Callable[[Any], bool] = lambda key: False, only_shape: bool = False
    ) -> None:
        """`is_past` says whether a key in a dictionary names a session of an earlier schedule; it stays so. With
        `only_shape`, large numbers and texts with digits do not count: ids and times are others after each schedule."""
        self._value: Way = _shape if only_shape else hash
        self._at_once = _SHAPES if only_shape else _PLAIN_TYPES
        self._roots = roots
        self._is_past = is_past
        self._past: set[Any] = set()
        modules = {type(root).__module__ for root in roots}
        self._packages = {module.partition(".")[0] for module in modules} - {"builtins"}
        self._globals = [
            value
            for module in sorted(modules)
            if module in sys.modules and not module.startswith("recollect.")
            for name, value in vars(sys.modules[module]).items()
            if not name.startswith("__") and not _is_code(value)
        ]
        self._left = NODES_MAX
        self._seen: dict[int, int] = {}
        self._ways: dict[type, Way | None] = {}
        self._settled: dict[int, tuple[Any, tuple[Any, ...], int]] = {}
        """Frozen objects made of constants, as most settings are, by id: with their values, and their fingerprint."""

    @property
    def is_large(self) -> bool:
        """Whether the latest fingerprint came near to what it can take in."""
        return self._left < NODES_MAX // 2

    def fingerprint(self) -> int:
        self._left = NODES_MAX
        self._seen = {}
        return hash((tuple(map(self._of, self._roots)), tuple(map(self._of, self._globals))))

    def _of(self, thing: Any) -> int:
        kind = type(thing)
        try:
            way = self._ways[kind]
        except KeyError:
            way = self._ways[kind] = self._way(kind)
        if way is None:
            return self._value(thing)
        place, seen = id(thing), self._seen
        if place in seen:
            return seen[place]
        self._left -= 1
        if self._left < 0:
            return 0
        seen[place] = len(seen) + 1
        return way(thing)

    def _way(self, kind: type) -> Way | None:
        """How to look at things of this class; None for values that are their own fingerprint."""
        of, name = self._of, kind.__name__
        if issubclass(kind, _PLAIN):
            return None
        if issubclass(kind, list | tuple | deque):
            are_plain = self._at_once.issuperset
            return lambda thing: hash(
                (name, *thing) if are_plain(map(type, thing)) else (name, *map(of, thing))
            )
        if issubclass(kind, dict):
            return self._dictionary
        if issubclass(kind, set | frozenset):
            return lambda thing: hash(
                ("set", len(thing), frozenset(of(item) for item in thing if isinstance(item, _PLAIN)))
            )
        if issubclass(kind, asyncio.Future):
            return lambda thing: hash(("future", thing.done()))
        if issubclass(kind, _LOCKS):
            return lambda thing: hash(("lock", repr(thing).startswith("<locked")))
        module = kind.__module__ or ""
        own = module.partition(".")[0] in self._packages and not module.startswith(_OURS)
        if own or module in _PRIMITIVES:
            return self._way_into(kind)
        only = hash(name)
        return lambda thing: only

    def _dictionary(self, thing: dict[Any, Any]) -> int:
        of, past = self._of, self._past
        parts: list[Any] = ["dict"]
        for key, value in thing.items():
            if key not in past:
                if self._is_past(key):
                    past.add(key)
                else:
                    parts += (of(key), of(value))
        return hash(tuple(parts))

    def _way_into(self, kind: type) -> Way:
        of, name, slots, at_once = self._of, kind.__name__, _slots(kind), self._at_once

        def look(thing: Any) -> int:
            fields = getattr(thing, "__dict__", {})
            parts: list[Any] = [name]
            for field, value in fields.items():
                if type(value) in at_once:  # most are; a call for each would take twice as long
                    parts += (field, value)
                elif field not in _IGNORED:
                    parts += (field, of(value))
            for slot in slots:
                if hasattr(thing, slot):
                    parts += (slot, of(getattr(thing, slot)))
            return hash(tuple(parts))

        return self._seldom(look, slots) if _is_frozen(kind) else look

    def _seldom(self, look: Way, slots: list[str]) -> Way:
        """Looks only if the values are others than last time: a frozen object can be changed, if one insists."""
        settled = self._settled

        def look_again(thing: Any) -> int:
            values = (*getattr(thing, "__dict__", {}).values(), *[getattr(thing, s, None) for s in slots])
            _, known, found = settled.get(id(thing), (None, None, 0))
            if known == values:
                return found
            found = look(thing)
            if all(isinstance(value, _CONSTANT) for value in values):
                settled[id(thing)] = thing, values, found
            return found

        return look_again


def _shape(value: Any) -> int:
    if isinstance(value, int) and value in _SMALL:
        return value
    if isinstance(value, str) and not _DIGIT.search(value):
        return hash(value)
    return hash((type(value).__name__, bool(value)))


def _is_frozen(kind: type) -> bool:
    """Whether it is a dataclass, or a struct of msgspec's, that says so."""
    said = getattr(kind, "__dataclass_params__", None) or getattr(kind, "__struct_config__", None)
    return bool(getattr(said, "frozen", False))


def _is_code(value: Any) -> bool:
    return inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value)


def _slots(kind: type) -> list[str]:
    found: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return [name for name in found if name not in _IGNORED]
