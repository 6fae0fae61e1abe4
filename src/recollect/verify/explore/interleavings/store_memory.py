"""What a store keeps in the process: a fingerprint of it, to tell whether a step changed anything that others see.

It follows containers, objects of the store's own package, and asyncio's and threading's primitives, but not the inside
of a driver (nobody can tell which of two equal connections a task got). The globals of the store's module count too.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections import deque
from typing import Any

NODES_MAX = 5000
_PLAIN = (str, int, float, bytes, bool, type(None), complex)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_PRIMITIVES = frozenset({"asyncio.locks", "asyncio.queues", "threading"})


class StoreMemory:
    def __init__(self, *roots: Any) -> None:
        self._roots = roots
        modules = {type(root).__module__ for root in roots}
        self._packages = {module.partition(".")[0] for module in modules} - {"builtins"}
        self._globals = [
            value
            for module in sorted(modules)
            if module in sys.modules and not module.startswith("recollect.")
            for name, value in vars(sys.modules[module]).items()
            if not name.startswith("__") and not _is_code(value)
        ]
        self._left = 0
        self._seen: dict[int, int] = {}

    def fingerprint(self) -> int:
        self._left = NODES_MAX
        self._seen = {}
        return hash((tuple(map(self._of, self._roots)), tuple(map(self._of, self._globals))))

    def _of(self, thing: Any) -> int:
        if isinstance(thing, _PLAIN):
            return hash(thing)
        place = id(thing)
        if place in self._seen:
            return self._seen[place]
        self._left -= 1
        if self._left < 0:
            return 0
        self._seen[place] = len(self._seen) + 1
        return self._of_object(thing)

    def _of_object(self, thing: Any) -> int:
        kind = type(thing)
        if isinstance(thing, list | tuple | deque):
            return hash((kind.__name__, tuple(map(self._of, thing))))
        if isinstance(thing, dict):
            return hash(("dict", tuple((self._of(key), self._of(value)) for key, value in thing.items())))
        if isinstance(thing, set | frozenset):
            known = frozenset(self._of(item) for item in thing if isinstance(item, _PLAIN))
            return hash(("set", len(thing), known))
        if isinstance(thing, asyncio.Future):
            return hash(("future", thing.done()))
        if isinstance(thing, _LOCKS):
            return hash(("lock", repr(thing).startswith("<locked")))
        module = kind.__module__ or ""
        if module.partition(".")[0] in self._packages or module in _PRIMITIVES:
            fields = sorted(_fields(thing).items())
            return hash((kind.__name__, tuple((name, self._of(value)) for name, value in fields)))
        return hash(kind.__name__)


def _is_code(value: Any) -> bool:
    return inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value)


def _fields(thing: Any) -> dict[str, Any]:
    found = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                found[name] = getattr(thing, name)
    return {name: value for name, value in found.items() if name not in ("_loop", "__weakref__")}
