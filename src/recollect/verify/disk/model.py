"""The durability model: base image + log → what the disk holds if the power fails at any moment.

`step` replays one record. At any moment the model has two images: `cached()`, which is what kill -9 leaves
(nothing is lost), and `durable()`, which is all that a power loss is obliged to leave (everything that may
be lost is lost). Crash states between the two are built by `states.py`.

A sync takes effect when it returns (SYNC_END), for what had been written when it began (SYNC). Two modes:

`ext4`    (data=ordered, the default) Names and lengths are journaled, in order. An fsync that has something
          to commit commits the journal up to that moment, whatever it is about; an fdatasync does so only
          if the file's length changed. A file that is renamed over another, or closed after it was cut to
          nothing and rewritten, takes its data with it (auto_da_alloc).
`strict`  What POSIX promises and no more: fsync makes that file's data durable, and a directory entry is
          durable only after an fsync of its directory. A rename is atomic and durable with the directory it
          moves into.

A failed sync (EIO) leaves the pages clean and unwritten: no later sync brings them back.

Does not model: the kernel's own write-back after some seconds (the durable image is the worst case, not the
likely one), permissions and times, disks that lie about a cache flush.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from recollect.verify.disk.image import DIRECTORY, PAGE, Base, Content, Image, Symlink
from recollect.verify.disk.nodes import (
    DataWritten,
    Edit,
    File,
    Folder,
    JournalEntry,
    LengthChange,
    NameChange,
    Node,
    Pending,
    SymlinkNode,
    TreeView,
    applied,
    clipped,
)
from recollect.verify.disk.records import Flag, Op, Record

Mode = Literal["ext4", "strict"]
MODES: tuple[Mode, ...] = ("ext4", "strict")


@dataclass(frozen=True, slots=True)
class _Capture:
    """What a sync that has begun will have made durable when it returns."""

    record: Record
    seq: int
    contents: tuple[tuple[File, Content], ...]
    folder: Folder | None
    journal_seq: int


class Model:
    """Replays a log on a base image."""

    def __init__(self, base: Base, mode: Mode = "ext4") -> None:
        self.mode: Mode = mode
        self.top = Folder()
        self.journal: list[JournalEntry] = []
        self.seq = 0
        self._nodes: dict[int, Node] = {}
        self._syncing: dict[tuple[int, int], _Capture] = {}
        self._journal_committed_seq = 0
        self._load(base)
        self.cache_view = TreeView(self.top, cached=True)
        self.disk_view = TreeView(self.top, cached=False)

    def _load(self, base: Base) -> None:
        self._nodes[base.inos[""]] = self.top
        folders = {"": self.top}
        for path in sorted(base.image.entries):
            entry = base.image.entries[path]
            above, _, name = path.rpartition("/")
            node: Node | None = self._nodes.get(base.inos[path])
            if node is None:
                if entry is DIRECTORY:
                    node = folders[path] = Folder()
                elif isinstance(entry, Symlink):
                    node = SymlinkNode(entry.target)
                else:
                    assert isinstance(entry, Content)
                    node = File(entry, entry)
                self._nodes[base.inos[path]] = node
            folders[above].cached[name] = folders[above].disk[name] = node

    # ---- what the model knows ----

    def cached(self) -> Image:
        """Nothing lost: the page cache, which outlives kill -9."""
        return self.cache_view.image()

    def durable(self) -> Image:
        """Everything lost that may be lost: the worst power loss."""
        return self.disk_view.image()

    def path_of(self, ino: int) -> str | None:
        """A name that this inode has now; "" is the folder itself."""
        node = self._nodes.get(ino)
        if node is self.top:
            return ""
        return next(iter(self.cache_view.paths_of(node)), None) if node is not None else None

    @property
    def syncs_in_flight(self) -> bool:
        """A sync had begun and not returned: the real disk may hold its data or not."""
        return bool(self._syncing)

    def finish_syncs(self) -> None:
        """Take syncs that never returned as done; a real disk may have got that far."""
        for capture in list(self._syncing.values()):
            self._synced(capture)
        self._syncing.clear()

    def absorb(self, ino: int, content: Content) -> None:
        """The cache turned out to hold this: a change that the recorder could not see, and that was never
        synced."""
        node = self._nodes.get(ino)
        if isinstance(node, File) and node.cached != content:
            new = [(index, content.page(index)) for index in content.pages.keys() | node.cached.pages.keys()]
            for index, page in new:
                if page != node.cached.page(index):
                    data = page[: max(0, content.size - index * PAGE)]
                    self._write(node, Record(Op.WRITE, offset=index * PAGE, length=len(data), data=data))
            if node.cached.size != content.size:
                self._length(node, Record(Op.TRUNCATE, length=content.size))

    # ---- replay ----

    def replay(self, records: Iterable[Record]) -> Model:
        for record in records:
            self.step(record)
        return self

    def step(self, record: Record) -> None:
        self.seq += 1
        op = record.op
        if op is Op.WRITE or op is Op.TRUNCATE or op is Op.ALLOCATE:
            self._data(record)
        elif op is Op.SYNC:
            self._syncing[record.pid, record.tid] = self._capture(record)
        elif op is Op.SYNC_END:
            capture = self._syncing.pop((record.pid, record.tid), None)
            if capture is not None and record.offset == 0:
                self._synced(capture)
            elif capture is not None:
                self._sync_failed(capture)
        elif op is Op.CLOSE:
            self._close(record)
        elif op is not Op.MARK:
            self._name(record)

    # ---- data ----

    def _data(self, record: Record) -> None:
        file = self._nodes.get(record.ino)
        if not isinstance(file, File):
            return
        if record.op is Op.WRITE:
            self._write(file, record)
        else:
            self._length(file, record)

    def _write(self, file: File, record: Record) -> None:
        change = Pending(self.seq, record)
        file.cached = applied(file.cached, record)
        file.unwritten.difference_update(change.pages)
        file.inode_seq = self.seq
        if record.offset + len(record.data) > file.disk.size:
            file.size_seq = self.seq
        file.pending.append(change)
        self.cache_view.touch(file)
        if record.flags & Flag.SYNCED:
            needs_commit = file.size_seq > self._journal_committed_seq
            self._persist_range(file, file.cached, record.offset, len(record.data))
            if self.mode == "ext4" and needs_commit:
                self._commit(self.seq)

    def _length(self, file: File, record: Record) -> None:
        grown_unseen = bool(record.flags & Flag.SNAPSHOT) and record.op is Op.TRUNCATE
        if grown_unseen and record.length == file.cached.size:
            return
        file.cached = applied(file.cached, record)
        file.inode_seq = file.size_seq = self.seq
        file.emptied = file.emptied or (record.op is Op.TRUNCATE and record.length == 0)
        file.pending = clipped(file.pending, file.cached.size)
        self.cache_view.touch(file)
        if self.mode == "strict" or grown_unseen:
            file.pending.append(Pending(self.seq, record))
        else:
            self.journal.append(LengthChange(self.seq, file, record))

    def _close(self, record: Record) -> None:
        file = self._nodes.get(record.ino)
        if isinstance(file, File) and file.emptied:
            file.emptied = False
            self._write_out(file)

    def _write_out(self, file: File) -> None:
        """What ext4 does for programs that replace a file without fsync (auto_da_alloc)."""
        if self.mode == "ext4":
            self.journal.append(DataWritten(self.seq, file, file.cached))

    # ---- names ----

    def _find(self, path: str) -> tuple[Folder, str, Node | None] | None:
        """(directory, name, what is there) of a path in the cache; None if its directory is not known."""
        *above, name = path.split("/")
        folder: Node | None = self.top
        for part in above:
            folder = folder.cached.get(part) if isinstance(folder, Folder) else None
        return (folder, name, folder.cached.get(name)) if isinstance(folder, Folder) else None

    def _name(self, record: Record) -> None:
        op = record.op
        if op is Op.CREATE and not record.path1:
            self._nodes[record.ino] = File(inode_seq=self.seq, size_seq=self.seq)
            return
        found = self._find(record.path1)
        if found is None:
            return
        folder, name, old = found
        if op is Op.RENAME:
            self._rename(record, folder, name, old)
        elif op is Op.UNLINK or op is Op.RMDIR:
            self._change(f"{op.name.lower()} {record.path1}", (Edit(folder, name, old, None),), folder)
        else:
            node = self._made(record)
            if node is not None:
                self._change(f"{op.name.lower()} {record.path1}", (Edit(folder, name, old, node),), folder)

    def _made(self, record: Record) -> Node | None:
        node: Node | None
        if record.op is Op.CREATE:
            node = File(inode_seq=self.seq, size_seq=self.seq)
        elif record.op is Op.MKDIR:
            node = Folder(inode_seq=self.seq)
        elif record.op is Op.SYMLINK:
            node = SymlinkNode(record.path2)
        else:
            return self._nodes.get(record.ino)
        self._nodes[record.ino] = node
        return node

    def _rename(self, record: Record, folder: Folder, name: str, moved: Node | None) -> None:
        target = self._find(record.path2)
        if target is None or moved is None:
            return
        into, new_name, replaced = target
        if replaced is moved:
            return
        what = f"rename {record.path1} to {record.path2}"
        if record.flags & Flag.EXCHANGE and replaced is not None:
            edits = (Edit(folder, name, moved, replaced), Edit(into, new_name, replaced, moved))
            self._change(what, edits, into)
            return
        if isinstance(moved, File) and isinstance(replaced, File):
            self._write_out(moved)
        edits = (Edit(folder, name, moved, None), Edit(into, new_name, replaced, moved))
        self._change(what, edits, into)

    def _change(self, what: str, edits: tuple[Edit, ...], durable_by: Folder) -> None:
        for edit in edits:
            edit.apply(edit.folder.cached)
            edit.folder.inode_seq = self.seq
            for node in (edit.old, edit.new):
                if isinstance(node, File):
                    node.inode_seq = self.seq
        self.journal.append(NameChange(self.seq, what, edits, durable_by))
        self.cache_view.names_changed()

    # ---- syncs ----

    def _capture(self, record: Record) -> _Capture:
        if record.flags & Flag.EVERYTHING:
            files = tuple((node, node.cached) for node in self._nodes.values() if isinstance(node, File))
            return _Capture(record, self.seq, files, None, self.seq)
        node = self._nodes.get(record.ino)
        commits = self.mode == "ext4" and self._commits(node, bool(record.flags & Flag.DATA_ONLY))
        contents = ((node, node.cached),) if isinstance(node, File) else ()
        return _Capture(
            record, self.seq, contents, node if isinstance(node, Folder) else None, self.seq if commits else 0
        )

    def _commits(self, node: Node | None, data_only: bool) -> bool:
        """ext4 commits the journal only for an inode that has something in it."""
        if isinstance(node, File):
            return (node.size_seq if data_only else node.inode_seq) > self._journal_committed_seq
        return isinstance(node, Folder) and node.inode_seq > self._journal_committed_seq

    def _synced(self, capture: _Capture) -> None:
        record = capture.record
        for file, content in capture.contents:
            if record.length:
                self._persist_range(file, content, record.offset, record.length)
            else:
                self._persist(file, content, capture.seq)
        if capture.journal_seq:
            self._commit(capture.journal_seq)
        elif capture.folder is not None and self.mode == "strict":
            self._commit(capture.seq, capture.folder)

    def _sync_failed(self, capture: _Capture) -> None:
        for file, _ in capture.contents:
            lost = [change for change in file.pending if change.seq <= capture.seq]
            file.unwritten.update(index for change in lost for index in change.pages)
            file.pending = [change for change in file.pending if change.seq > capture.seq]

    def _persist(self, file: File, content: Content, seq: int) -> None:
        """The file's data as it was at `seq` is on the disk."""
        if seq <= file.synced_seq:
            return
        if file.cut_seq > seq and file.disk.size < content.size:
            content = content.resize(file.disk.size)
        if file.unwritten:
            content = content.with_pages((index, file.disk.page(index)) for index in file.unwritten)
        file.disk = content
        file.synced_seq = seq
        file.pending = [change for change in file.pending if change.seq > seq]
        self.disk_view.touch(file)

    def _persist_range(self, file: File, content: Content, offset: int, length: int) -> None:
        """Only these bytes, in whole pages, are on the disk (O_DSYNC, msync)."""
        end = offset + length
        span = range(offset // PAGE, (end - 1) // PAGE + 1)
        size = max(file.disk.size, min(content.size, end))
        file.disk = file.disk.with_pages(((index, content.page(index)) for index in span), size)
        if size % PAGE:  # the last page ends where the file ends
            file.disk = file.disk.resize(size + 1).resize(size)
        file.pending = [
            change for change in file.pending if not set(change.pages) or not set(change.pages) <= set(span)
        ]
        self.disk_view.touch(file)

    def _commit(self, seq: int, folder: Folder | None = None) -> None:
        """Journal entries up to `seq` (only those of one directory, in strict) are on the disk."""
        waiting: list[JournalEntry] = []
        for entry in self.journal:
            if entry.seq > seq or (
                folder is not None and not (isinstance(entry, NameChange) and entry.durable_by is folder)
            ):
                waiting.append(entry)
            else:
                self._to_disk(entry)
        self.journal = waiting
        if folder is None:
            self._journal_committed_seq = max(self._journal_committed_seq, seq)

    def _to_disk(self, entry: JournalEntry) -> None:
        if isinstance(entry, LengthChange):
            if entry.seq <= entry.file.synced_seq:
                return  # the data that was synced later already has it
            entry.file.disk = applied(entry.file.disk, entry.record)
            entry.file.cut_seq = entry.seq
            self.disk_view.touch(entry.file)
            return
        if isinstance(entry, DataWritten):
            self._persist(entry.file, entry.content, entry.seq)
            return
        for edit in entry.edits:
            edit.apply(edit.folder.disk)
        self.disk_view.names_changed()
