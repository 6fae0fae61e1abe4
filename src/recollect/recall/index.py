"""A vector index: derived from the rows, thrown away and rebuilt whenever it is in doubt.

An index holds sequences, users and vectors; no text. It carries an `IndexMarker`: whose rows, in which space, up to
which number of the sequence. Whatever an index says is checked against the rows: a sequence that is not there, not the
user's, or forgotten does not come back from a search; and a search that finds too little is done over the rows.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from recollect.erasure import Unreached
from recollect.errors import RecollectError
from recollect.recall.rows import Change

SYNC_THRESHOLD = 10_000
"""Changes between two flushes of Chroma's vector files; its own default is 1,000. Each flush rewrites the whole index,
and in a folder we sync it: rarer is cheaper. The price is that a start replays up to this many, in the background."""


class IndexBroken(RecollectError):
    """The index cannot be used as it is. The rows are not affected."""


class IndexMarker(msgspec.Struct, frozen=True):
    rows: str
    """The identity of the rows."""
    space: int
    dimension: int
    through: int
    """Every change up to this number of the sequence is in the index."""


class Near(msgspec.Struct, frozen=True):
    sequence: int
    score: float


class VectorIndex(Protocol):
    """Any error of the engine below comes out as `IndexBroken`."""

    name: str

    async def open(self) -> IndexMarker | None:
        """What the index on hand carries; None if there is none that can be trusted."""
        ...

    async def reset(self, marker: IndexMarker) -> None:
        """An empty index in its place."""
        ...

    async def apply(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        """Takes over the changes and the marker; applying some of them again changes nothing."""
        ...

    async def complete(self) -> None:
        """All rows have been applied to an index that was reset: what is cheaper done at once is done now."""
        ...

    def erased(self) -> tuple[list[str], list[Unreached]]:
        """Right after it was rebuilt: which of its files have nothing from before, and which may."""
        ...

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]: ...
    async def vectors(self, sequences: Sequence[int]) -> dict[int, bytes]:
        """The vectors that it keeps under these numbers. Looked up, not searched for: nothing here is approximate."""
        ...

    async def count(self) -> int: ...
    async def close(self) -> None: ...
