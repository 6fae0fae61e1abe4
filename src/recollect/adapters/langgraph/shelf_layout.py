"""Where the channel values of a checkpoint are, on a shelf with tables.

A value is written once, together with the checkpoint that first has it, and in the same row: so most checkpoints cost
one row. A later checkpoint in which the channel did not change refers to that row, its home. Large values have rows of
their own, so that nobody reads one for the sake of a small neighbour. Values of a few bytes are shorter than a
reference to them, and are written again.

Which rows a checkpoint refers to follows from its parent's. Those of the latest checkpoints are remembered, because
LangGraph reads a checkpoint before it puts the next one. A value whose home is not known is written again.

If a checkpoint is dropped, those of its values that others still refer to get rows of their own. So whoever does not
find a value at its home looks for it there; what is in neither place is `MISSING`. A base that was dropped meanwhile
has nothing to refer to: the statement that puts its child then stores nothing, and all values are written again.
"""

import threading
import zlib
from collections.abc import Mapping, Sequence

import msgspec

from recollect.adapters.langgraph.shelf import (
    EMPTY,
    MISSING,
    WRONG_LINKS,
    CheckpointRow,
    ThreadPlace,
    Unchanged,
    text_of,
)
from recollect.errors import Unreadable

INLINE_MAX = 16_384
"""Bytes of a value. A larger one has a row of its own."""
SMALL_MAX = 64
"""Bytes of a value that is written again with every checkpoint."""
PLACES_MAX = 100
"""How many places are remembered, with the values in their latest rows."""

OWN_ROW = b""
"""The home of a value that has a row of its own."""


class Layout(msgspec.Struct, frozen=True):
    """The values of one checkpoint, by their references."""

    inline: dict[bytes, bytes]
    """Those in its own row."""
    homes: dict[bytes, bytes]
    """For each of the others the id of the checkpoint whose row has it, or `OWN_ROW`."""

    @property
    def other_rows(self) -> set[bytes]:
        """The checkpoints whose rows have values of this one."""
        return {home for home in self.homes.values() if home != OWN_ROW} if self.homes else set()

    def without_others(self, prefixes: tuple[bytes, ...]) -> "Layout":
        """Without the values elsewhere whose references do not begin like this."""
        kept = {ref: home for ref, home in self.homes.items() if ref.startswith(prefixes)}
        return Layout(self.inline, kept)

    def gathered(
        self, others: Mapping[bytes, Mapping[bytes, bytes]], own_rows: Mapping[bytes, bytes]
    ) -> dict[bytes, bytes]:
        """All values: `others` are the values in other checkpoints' rows, by their ids."""
        values = dict(self.inline)
        for ref, home in self.homes.items():
            values[ref] = others.get(home, {}).get(ref) or own_rows.get(ref, MISSING)
        return values

    def checksum(self, checkpoint: bytes, parent: bytes | None) -> bytes:
        """Of what leads to the values, and to the checkpoint's parent; the values have checksums of their own."""
        told = (checkpoint, parent, list(self.inline), list(self.homes), list(self.homes.values()))
        return zlib.crc32(msgspec.msgpack.encode(told)).to_bytes(4, "big")

    def checked(self, checkpoint: bytes, parent: bytes | None, checksum: bytes | None) -> "Layout":
        """Rows of earlier editions have no checksum."""
        if checksum is not None and checksum != self.checksum(checkpoint, parent):
            raise Unreadable(WRONG_LINKS.format(text_of(checkpoint)))
        return self


def layout_of(refs: Sequence[bytes], homes: Sequence[bytes] | None, inline: bytes | None) -> Layout:
    """As the columns of a row have it. Without homes all of them have rows of their own."""
    homes = homes or [OWN_ROW] * len(refs)
    if len(homes) != len(refs):
        raise Unreadable(f"a checkpoint refers to {len(refs)} values and has {len(homes)} places for them")
    return Layout(inline_values(inline), dict(zip(refs, homes, strict=True)))


def inline_values(raw: bytes | None) -> dict[bytes, bytes]:
    if raw is None:
        return {}
    try:
        return msgspec.msgpack.decode(raw, type=dict[bytes, bytes])
    except msgspec.DecodeError as error:
        raise Unreadable(
            f"the values of a checkpoint: {error}; these are not the bytes that were written"
        ) from error


def moved(dropped: Mapping[bytes, Mapping[bytes, bytes]], kept: Sequence[Layout]) -> dict[bytes, bytes]:
    """The values in dropped checkpoints' rows that others refer to: they get rows of their own."""
    wanted = {(home, ref) for layout in kept for ref, home in layout.homes.items()}
    return {
        ref: value
        for home, values in dropped.items()
        for ref, value in values.items()
        if (home, ref) in wanted
    }


class Laid(msgspec.Struct, frozen=True):
    """A checkpoint that is to be put."""

    layout: Layout
    own_rows: dict[bytes, bytes]
    """New rows of values."""

    @property
    def needs_base(self) -> bool:
        """Whether it refers to values that are there as long as its base is."""
        return len(self.layout.homes) > len(self.own_rows)


class KnownHomes:
    """Where the values of the latest checkpoint of each place are."""

    def __init__(self) -> None:
        self._latest: dict[ThreadPlace, tuple[bytes, Layout]] = {}
        self._gate = threading.Lock()

    def of(self, row: CheckpointRow) -> Layout | None:
        """What the row's base has for it, if that is known."""
        known = self._latest.get(row.place)
        return for_child(row, known[1]) if known is not None and known[0] == row.base else None

    def note(self, place: ThreadPlace, checkpoint: bytes, layout: Layout) -> None:
        """For a checkpoint that was read or put."""
        self._latest[place] = checkpoint, layout
        if len(self._latest) > PLACES_MAX:
            with self._gate:
                self._latest = dict(list(self._latest.items())[PLACES_MAX // 2 :])

    def forget(self, thread: bytes) -> None:
        with self._gate:
            self._latest = {
                place: known for place, known in list(self._latest.items()) if place.thread != thread
            }


def for_child(row: CheckpointRow, layout: Layout) -> Layout:
    """What the row refers to, of its base's layout: the small values themselves, and the homes of the others.

    A checkpoint that is put again with its own config, to change its metadata, keeps its values.
    """
    if row.base is None or row.base == row.id:
        return layout
    small = {ref: value for ref, value in layout.inline.items() if len(value) <= SMALL_MAX}
    return Layout(small, {**{ref: row.base for ref in layout.inline if ref not in small}, **layout.homes})


def laid_out(
    row: CheckpointRow, new: Mapping[bytes, bytes], unchanged: Unchanged, base: Layout | None
) -> Laid:
    """Decides where each value of the checkpoint goes; `base` is what `for_child` says of its base."""
    inline: dict[bytes, bytes] = {}
    homes: dict[bytes, bytes] = {}
    own_rows: dict[bytes, bytes] = {}
    for ref in row.refs:
        value: bytes | None = new.get(ref)
        if value is None and base is not None:
            value = base.inline.get(ref)
            if value is None and (home := base.homes.get(ref)) is not None:
                homes[ref] = home
                continue
        if value is None:
            value = unchanged(ref)
        if value is None or value == EMPTY:
            continue
        if len(value) <= INLINE_MAX:
            inline[ref] = value
        else:
            own_rows[ref] = value
            homes[ref] = OWN_ROW
    return Laid(Layout(inline, homes), own_rows)


def has_others(row: CheckpointRow, new: Mapping[bytes, bytes]) -> bool:
    """Whether it has channels that did not change, so that it matters what is known of its base."""
    return row.base is not None and len(new) < len(row.refs)
