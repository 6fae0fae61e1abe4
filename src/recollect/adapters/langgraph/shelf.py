"""The storage under a saver: checkpoints, channel values and pending writes as bytes, on one engine.

A checkpoint is stored without its channel values. It refers to them by channel and version, and a value that did not
change between two checkpoints is stored once. A value that did change is written whole: only delta channels keep a
growing list from being written again with every step.

Ids are bytes here, in the same order as LangGraph's texts, and each shelf stores them separately, never joined into
one. Every change is one transaction, and repeating it changes nothing, so it may be repeated when its outcome is
unknown. Checkpoints and values carry a checksum.
"""

import re
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from recollect.composite import composite_id
from recollect.errors import Unreadable

Version = str | int | float

Unchanged = Callable[[bytes], bytes | None]
"""The value of a channel that did not change, by its reference, for a shelf that does not know where it is; None if the
channel has none."""


class ThreadPlace(NamedTuple):
    """A namespace of a thread: the graph itself, or one of its subgraphs."""

    thread: bytes
    namespace: bytes


class CheckpointRow(msgspec.Struct, frozen=True):
    """A checkpoint without its channel values."""

    place: ThreadPlace
    id: bytes
    parent: bytes | None
    run: bytes | None
    refs: list[bytes]
    """References to its channel values."""
    checkpoint: bytes
    metadata: bytes
    base: bytes | None = None
    """When it is put: the checkpoint whose values it may refer to, which is its parent, or itself if it is put again
    with its own config."""


class PendingRow(msgspec.Struct, frozen=True):
    """What one task wrote to one channel. With an `index` of 0 or more the first write stays, else the last."""

    task: bytes
    index: int
    channel: bytes
    path: bytes
    value: bytes

    @property
    def order(self) -> tuple[bytes, bytes, int]:
        """The order of LangGraph's `writes_sort_key`."""
        return self.path, self.task, self.index


class FoundCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint as read, from one moment. A value that is gone is `MISSING`."""

    row: CheckpointRow
    values: dict[bytes, bytes]
    writes: list[PendingRow]


class CheckpointListing(msgspec.Struct, frozen=True):
    """Which checkpoints to list, latest first."""

    thread: bytes | None = None
    namespace: bytes | None = None
    id: bytes | None = None
    before: bytes | None = None
    after: tuple[bytes, bytes, bytes] | None = None
    """Where the last page ended: id, thread and namespace."""
    limit: int = 100


class Shelf(Protocol):
    """One engine. Its calls end within the time limit, and its errors say whether something was written.

    For a witness it has an identity, given to it when it was first opened, and a mark, which only ever grows.
    """

    @property
    def identity(self) -> str: ...

    async def mark(self) -> int: ...

    async def raise_mark(self) -> None: ...

    async def put(self, row: CheckpointRow, values: Mapping[bytes, bytes], unchanged: Unchanged) -> None: ...

    async def put_writes(
        self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]
    ) -> None: ...

    async def get(self, place: ThreadPlace, checkpoint: bytes | None) -> FoundCheckpoint | None:
        """This checkpoint, or the latest."""
        ...

    async def page(self, listing: CheckpointListing) -> list[FoundCheckpoint]: ...

    async def ancestors(
        self, place: ThreadPlace, checkpoint: bytes, prefixes: Sequence[bytes], limit: int
    ) -> list[FoundCheckpoint]:
        """This checkpoint, its parent and so on, with only the values whose references have these prefixes."""
        ...

    async def ids(self, place: ThreadPlace) -> list[bytes]: ...

    async def namespaces(self, thread: bytes) -> list[bytes]: ...

    async def of_runs(self, runs: Sequence[bytes]) -> list[tuple[ThreadPlace, bytes]]: ...

    async def drop(self, place: ThreadPlace, checkpoints: Sequence[bytes]) -> None:
        """Removes checkpoints and their writes, and the values that no other checkpoint refers to."""
        ...

    async def delete_thread(self, thread: bytes) -> None: ...

    async def copy_thread(self, source: bytes, target: bytes) -> None: ...

    async def close(self) -> None: ...


@runtime_checkable
class NearShelf(Protocol):
    """A shelf that can also be used on the caller's own thread, which saves handing the call to the saver's loop.

    Each call says whether it did its work. If not, because somebody else is using the shelf or something went wrong,
    nothing was written, and the caller takes the other way, which waits, retries and reports errors. After
    `OutcomeUnknown` it takes the other way, too; but an error there does not say what became of this call.
    """

    @property
    def is_quick(self) -> bool:
        """Whether its changes take moments, so that they may be made on somebody's event loop."""
        ...

    def put_here(self, row: CheckpointRow, values: Mapping[bytes, bytes], unchanged: Unchanged) -> bool: ...

    def put_writes_here(
        self, place: ThreadPlace, checkpoint: bytes, writes: Sequence[PendingRow]
    ) -> bool: ...

    def get_here(
        self, place: ThreadPlace, checkpoint: bytes | None
    ) -> tuple[bool, FoundCheckpoint | None]: ...


# ---- names and values as bytes


def key(text: str) -> bytes:
    """Any text as bytes, lone surrogates included; keeps the order of the texts."""
    return text.encode("utf-8", "surrogatepass")


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def reference(channel: str, version: Version) -> bytes:
    """The reference of a channel's value. The version's type is part of it: 1 and "1" are two versions."""
    return key(composite_id(channel, f"{type(version).__name__}:{version}"))


def reference_prefix(channel: str) -> bytes:
    """How the references of this channel, and of no other, begin."""
    return reference(channel, 0)[: -len("int:0")]


def packed(kind: str, data: bytes) -> bytes:
    """What LangGraph's serializer returns, as one value with a checksum."""
    begin = kind.encode() + b"\0"
    return b"".join((zlib.crc32(data, zlib.crc32(begin)).to_bytes(4, "big"), begin, data))


def unpacked(raw: bytes, what: str) -> tuple[str, bytes]:
    if raw == MISSING:
        raise Unreadable(f"{what}: its value is not there any more; restore the memory from a backup")
    if zlib.crc32(memoryview(raw)[4:]).to_bytes(4, "big") != raw[:4]:  # without a copy: values may be large
        raise Unreadable(f"{what}: its checksum is wrong, these are not the bytes that were written")
    end = raw.index(b"\0", 4)
    return raw[4:end].decode(), raw[end + 1 :]


def has_half_character(value: object) -> bool:
    """Whether a text with a lone surrogate is in the value: in its items, or in the fields of its objects."""
    waiting: list[Any] = [value]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if not one.isascii() and _LONE.search(one):
                return True
        elif one is None:
            continue
        elif isinstance(one, dict):
            waiting += one
            waiting += one.values()
        elif isinstance(one, list | tuple | set | frozenset | deque):
            waiting += one
        else:
            fields, slots = getattr(one, "__dict__", None), _slots(type(one))  # type: ignore[arg-type]
            if (fields or slots) and id(one) not in seen:
                seen.add(id(one))
                waiting += fields.values() if fields else ()
                waiting += [getattr(one, name, None) for name in slots]
    return False


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """Where else its objects have fields: LangGraph's `Send` and `Interrupt` have slots, and no dictionary."""
    declared = [one.__dict__.get("__slots__", ()) for one in kind.__mro__]
    names = [name for one in declared for name in ([one] if isinstance(one, str) else one)]
    return tuple(name for name in names if name not in _NO_FIELDS)


_NO_FIELDS = ("__dict__", "__weakref__", "__pydantic_fields_set__")

_LONE = re.compile("[\ud800-\udfff]")

EMPTY = packed("empty", b"")
"""A channel without a value at this version."""
MISSING = b""
"""In the place of a value that a checkpoint refers to, if it is gone."""
WRONG_LINKS = (
    "checkpoint {}: its references or its parent are not those that were written: their checksum is wrong"
)
