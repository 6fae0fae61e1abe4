"""The sessions a store used lately: their packed keys, and the last sequence it knows of each.

Both are bounded; `recollect.known` has the second. The packed keys are several times as long as the id, once escaped:
they are kept up to `BYTES_MAX` in all, and recomputed each time for an id so long that a few would fill that.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recollect.known import SESSIONS_KNOWN_MAX, Known, KnownSessions, Told
from recollect.stores.redis.address import Address
from recollect.stores.redis.slots import slot_of
from recollect.stores.redis.wire import pack, pack_arguments

BYTES_MAX = 8 * 1024 * 1024
PLACE_BYTES_MAX = 16 * 1024


class Place:
    """A session, as requests name it."""

    __slots__ = ("keys", "known", "slot", "snapshot")

    def __init__(self, known: Known, messages: str, counter: str, turns: str, fingerprints: str) -> None:
        self.known = known
        self.slot = slot_of(messages.encode())
        self.keys = pack_arguments((messages, counter, turns, fingerprints))
        self.snapshot = (
            pack("MULTI")
            + pack("HMGET", counter, "last", "floor", "runs")
            + pack("LLEN", messages)
            + b"*4\r\n"
            + pack_arguments(("LRANGE", messages))
        )
        """The start of a transaction that reads the session, up to where the window is named."""

    @property
    def size(self) -> int:
        return len(self.keys) + len(self.snapshot)


class Places:
    """`Place` by session id, as bytes; the oldest go first."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._known = KnownSessions()
        self._places: dict[bytes, Place] = {}
        self._size = 0
        self._gate = threading.Lock()
        """The store's loop, and a caller who goes past it (`near`), add sessions at the same time."""

    def of(self, key: bytes) -> Place:
        place = self._places.get(key)
        return self._added(key) if place is None else place

    def passing(self, key: bytes) -> Place:
        """Of a session that is only passed by: it pushes out none that is in use."""
        return self._places.get(key) or Place(Known(), *self._address.session_keys(key))

    @contextmanager
    def erasing(self, key: bytes) -> Iterator[None]:
        """See `KnownSessions.erasing`. What began before keeps the place that it began with."""
        with self._known.erasing(key):
            self._drop(key)
            try:
                yield
            finally:
                self._drop(key)

    def erased(self, key: bytes, place: Place, told: Told) -> None:
        """See `KnownSessions.erased`."""
        self._known.erased(key, place.known, told)
        if place.known.erased and self._places.get(key) is place:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        with self._gate:
            place = self._places.pop(key, None)
            if place is not None:
                self._size -= place.size

    def _added(self, key: bytes) -> Place:
        with self._gate:
            place = self._places.get(key)
            if place is None:
                place = Place(self._known.of(key), *self._address.session_keys(key))
                if place.size <= PLACE_BYTES_MAX:
                    self._keep(key, place)
            return place

    def _keep(self, key: bytes, place: Place) -> None:
        self._places[key] = place
        self._size += place.size
        while self._size > BYTES_MAX or len(self._places) > SESSIONS_KNOWN_MAX:
            self._size -= self._places.pop(next(iter(self._places))).size
