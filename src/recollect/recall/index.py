"""A vector index: derived from the rows, thrown away and rebuilt whenever it is in doubt.

An index holds sequences, users and vectors; no text. It carries an `IndexMarker`: whose rows it has, in which space,
and up to which sequence number. Whatever an index returns is checked against the rows: a sequence that is missing,
forgotten or another user's never comes back from a search; and a search that finds too little is repeated over the
rows.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from recollect.erasure import Unreached
from recollect.errors import RecollectError
from recollect.recall.rows import Change

SYNC_THRESHOLD = 10_000
"""Changes between two flushes of Chroma's vector files; its own default is 1,000. Each flush rewrites the whole index,
and in a folder we fsync it, so fewer is cheaper. The price: a start replays up to this many, in the background."""


class IndexBroken(RecollectError):
    """The index cannot be used as it is. The rows are unaffected."""


class IndexMarker(msgspec.Struct, frozen=True):
    rows: str
    """The identity of the rows."""
    space: int
    dimension: int
    through: int
    """Every change up to this sequence number is in the index."""


class Near(msgspec.Struct, frozen=True):
    sequence: int
    score: float


class VectorIndex(Protocol):
    """Any error of the engine underneath is raised as `IndexBroken`."""

    name: str

    async def open(self) -> IndexMarker | None:
        """The marker of the existing index; None if there is no index that can be trusted."""
        ...

    async def reset(self, marker: IndexMarker) -> None:
        """Starts over with an empty index."""
        ...

    async def apply(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        """Takes in the changes and the marker; applying some of them again changes nothing."""
        ...

    async def complete(self) -> None:
        """Called when all rows have been applied after a reset: the time for work that is cheaper done in one go."""
        ...

    def erased(self) -> tuple[list[str], list[Unreached]]:
        """Right after a rebuild: which of its files hold nothing old, and which may."""
        ...

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]: ...
    async def vectors(self, sequences: Sequence[int]) -> dict[int, bytes]:
        """The vectors it holds under these numbers. A lookup, not a search: nothing here is approximate."""
        ...

    async def count(self) -> int: ...
    async def close(self) -> None: ...
