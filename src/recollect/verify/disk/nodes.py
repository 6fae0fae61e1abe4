"""Files, directories and pending changes, each known twice: as the page cache has it and as the disk has it.

What programs read is the page cache. What is there after a power loss is the disk. A change goes to the
cache at once and waits in `pending` (data) or in the model's journal (names) until a sync takes it to the
disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recollect.verify.disk.image import DIRECTORY, EMPTY, PAGE, Content, Image, ImageEntry, Symlink
from recollect.verify.disk.records import (
    FALLOC_COLLAPSE_RANGE,
    FALLOC_INSERT_RANGE,
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    Flag,
    Op,
    Record,
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A change of a file's data that no sync has covered yet."""

    seq: int
    record: Record

    @property
    def pages(self) -> range:
        """Pages that the change makes dirty."""
        if self.record.op is not Op.WRITE or not self.record.data:
            return range(0)
        return range(self.record.offset // PAGE, (self.record.offset + len(self.record.data) - 1) // PAGE + 1)


@dataclass(eq=False, slots=True)
class File:
    """A regular file, with or without names."""

    cached: Content = EMPTY
    disk: Content = EMPTY
    pending: list[Pending] = field(default_factory=list)
    unwritten: set[int] = field(default_factory=set)
    """Pages whose write-back failed: clean in the cache, absent from the disk, and no later sync will write
    them."""
    synced_seq: int = 0
    cut_seq: int = 0
    """Last change of length that the journal took to the disk."""
    inode_seq: int = 0
    """Last change that makes fsync commit the journal."""
    size_seq: int = 0
    """Last change that makes fdatasync commit the journal, too."""
    emptied: bool = False
    """Truncated to nothing, and not closed since."""


@dataclass(eq=False, slots=True)
class Folder:
    cached: dict[str, Node] = field(default_factory=dict)
    disk: dict[str, Node] = field(default_factory=dict)
    inode_seq: int = 0


@dataclass(eq=False, slots=True)
class SymlinkNode:
    target: str


Node = File | Folder | SymlinkNode


@dataclass(frozen=True, slots=True)
class Edit:
    """One directory entry that changes: `old` is taken out if it is still there, `new` is put in."""

    folder: Folder
    name: str
    old: Node | None
    new: Node | None

    def apply(self, entries: dict[str, Node]) -> None:
        if self.new is not None:
            entries[self.name] = self.new
        elif entries.get(self.name) is self.old:
            entries.pop(self.name, None)


@dataclass(frozen=True, slots=True)
class NameChange:
    """One call that changes names: all its edits reach the disk together. `durable_by` is the directory
    whose fsync makes it durable in mode `strict`."""

    seq: int
    what: str
    edits: tuple[Edit, ...]
    durable_by: Folder


@dataclass(frozen=True, slots=True)
class LengthChange:
    """A truncation or allocation, which ext4 journals like a change of names."""

    seq: int
    file: File
    record: Record


@dataclass(frozen=True, slots=True)
class DataWritten:
    """ext4 has begun to write a file's data by itself: it reaches the disk before anything later in the journal."""

    seq: int
    file: File
    content: Content


JournalEntry = NameChange | LengthChange | DataWritten


def applied(content: Content, record: Record) -> Content:
    """A file's content after one data record."""
    if record.op is Op.WRITE:
        if record.flags & Flag.SNAPSHOT and record.offset + len(record.data) > content.size:
            return content.write(record.offset, record.data[: max(0, content.size - record.offset)])
        return content.write(record.offset, record.data)
    if record.op is Op.TRUNCATE:
        return content.resize(record.length)
    if record.flags & (FALLOC_COLLAPSE_RANGE | FALLOC_INSERT_RANGE):
        return _shifted(content, record)
    if record.flags & (FALLOC_PUNCH_HOLE | FALLOC_ZERO_RANGE):
        content = content.zero(record.offset, record.length)
    if record.flags & FALLOC_KEEP_SIZE:
        return content
    return content.resize(max(content.size, record.offset + record.length))


def _shifted(content: Content, record: Record) -> Content:
    """fallocate that removes or inserts whole blocks in the middle."""
    tail_from = record.offset + (record.length if record.flags & FALLOC_COLLAPSE_RANGE else 0)
    tail_to = record.offset + (record.length if record.flags & FALLOC_INSERT_RANGE else 0)
    tail = content.read(tail_from)
    shifted = content.resize(record.offset).resize(tail_to + len(tail))
    return shifted.write(tail_to, tail)


def clipped(pending: Iterable[Pending], size: int) -> list[Pending]:
    """Pending writes after the file was cut: what lay beyond the cut can no longer be written back."""
    kept = []
    for change in pending:
        record = change.record
        if record.op is Op.WRITE and record.offset + len(record.data) > size:
            if record.offset >= size:
                continue
            shorter = record.data[: size - record.offset]
            change = Pending(change.seq, record._replace(data=shorter, length=len(shorter)))
        kept.append(change)
    return kept


def flatten(
    top: Folder, entries_of: dict[Folder, dict[str, Node]] | None = None, *, cached: bool = False
) -> dict[str, Node]:
    """Every path below a directory. `entries_of` overrides single directories (crash states between two
    syncs)."""
    found: dict[str, Node] = {}
    waiting = [("", top)]
    while waiting:
        below, folder = waiting.pop()
        held = folder.cached if cached else folder.disk
        entries = entries_of.get(folder, held) if entries_of else held
        for name, node in entries.items():
            path = f"{below}/{name}" if below else name
            found[path] = node
            if isinstance(node, Folder):
                waiting.append((path, node))
    return found


def entry_of(node: Node, *, cached: bool) -> ImageEntry:
    if isinstance(node, File):
        return node.cached if cached else node.disk
    return DIRECTORY if isinstance(node, Folder) else Symlink(node.target)


class TreeView:
    """The tree as the cache or as the disk has it, as an image that is kept up to date instead of rebuilt."""

    def __init__(self, top: Folder, *, cached: bool) -> None:
        self._top = top
        self._cached = cached
        self._names: dict[str, Node] | None = None
        self._paths: dict[Node, list[str]] = {}
        self._touched: set[File] = set()
        self._image: Image | None = None

    def names_changed(self) -> None:
        self._names = None

    def touch(self, file: File) -> None:
        self._touched.add(file)

    @property
    def names(self) -> dict[str, Node]:
        if self._names is None:
            self._refresh()
        assert self._names is not None
        return self._names

    def paths_of(self, node: Node) -> list[str]:
        if self._names is None:
            self._refresh()
        return self._paths.get(node, [])

    def image(self) -> Image:
        names = self.names
        if self._image is None:
            self._image = Image({path: entry_of(node, cached=self._cached) for path, node in names.items()})
        elif self._touched:
            self._image = self._image.replacing(
                {
                    path: entry_of(file, cached=self._cached)
                    for file in self._touched
                    for path in self._paths.get(file, ())
                }
            )
        self._touched.clear()
        return self._image

    def _refresh(self) -> None:
        old, self._names = self._image, flatten(self._top, cached=self._cached)
        self._paths = {}
        for path, node in self._names.items():
            self._paths.setdefault(node, []).append(path)
        if old is not None:
            changed: dict[str, ImageEntry | None] = {
                path: None for path in old.entries if path not in self._names
            }
            for path, node in self._names.items():
                entry = entry_of(node, cached=self._cached)
                if old.entries.get(path) is not entry:
                    changed[path] = entry
            self._image = old.replacing(changed)
            self._touched.clear()
