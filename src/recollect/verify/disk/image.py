"""What a disk holds at one moment: file contents, and the tree of names above them.

Exploring a run means thousands of images, each of which differs in a page, so contents are immutable and share
their pages, a page of zeros is not stored at all (a torn index file may claim terabytes), and digests are
sums: replacing one page or one file changes a digest by a subtraction and an addition, never by reading the
rest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

PAGE = 4096
_ZERO = bytes(PAGE)
_MASK = (1 << 128) - 1
_WEIGHT = 0x9E3779B97F4A7C15F39CC0605CEDC835


def _hash(*parts: bytes) -> int:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return int.from_bytes(digest.digest(), "little")


def _weighed(index: int, page_hash: int) -> int:
    """The same page elsewhere in the file weighs something else: order matters although digests are sums."""
    return page_hash * ((index + 1) * _WEIGHT | 1)


class Content:
    """The bytes of one file; immutable. `pages` maps an index to (4 KiB, its hash); absent pages are
    zeros."""

    __slots__ = ("_sum", "pages", "size")

    def __init__(self, size: int, pages: dict[int, tuple[bytes, int]], page_sum: int) -> None:
        self.size = size
        self.pages = pages
        self._sum = page_sum

    @classmethod
    def of(cls, data: bytes) -> Content:
        return EMPTY.write(0, data)

    @property
    def digest(self) -> int:
        return (self._sum + self.size * _WEIGHT) & _MASK

    @property
    def stored_bytes(self) -> int:
        """Bytes that are not holes."""
        return len(self.pages) * PAGE

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Content) and self.size == other.size and self.digest == other.digest

    def __hash__(self) -> int:
        return self.digest & 0x7FFFFFFFFFFFFFFF

    def __repr__(self) -> str:
        return f"Content({self.size} bytes, {len(self.pages)} pages)"

    def page(self, index: int) -> bytes:
        held = self.pages.get(index)
        return held[0] if held else _ZERO

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        end = self.size if length is None else min(self.size, offset + length)
        if end <= offset:
            return b""
        first = offset // PAGE
        joined = b"".join(self.page(index) for index in range(first, (end - 1) // PAGE + 1))
        return joined[offset - first * PAGE : end - first * PAGE]

    def with_pages(self, new: Iterable[tuple[int, bytes]], size: int | None = None) -> Content:
        """This content with some pages replaced, and another size."""
        pages, total = self.pages.copy(), self._sum
        for index, data in new:
            old = pages.pop(index, None)
            if old is not None:
                total -= _weighed(index, old[1])
            if data != _ZERO:
                page_hash = old[1] if old is not None and old[0] == data else _hash(data)
                pages[index] = (data, page_hash)
                total += _weighed(index, page_hash)
        return Content(self.size if size is None else size, pages, total & _MASK)

    def write(self, offset: int, data: bytes) -> Content:
        if not data:
            return self
        end = offset + len(data)
        first, last = offset // PAGE, (end - 1) // PAGE
        if first == last:
            old, start = self.page(first), offset - first * PAGE
            changed = [(first, old[:start] + data + old[start + len(data) :])]
        else:
            head, tail = self.page(first)[: offset - first * PAGE], self.page(last)[end - last * PAGE :]
            whole = head + data + tail
            changed = [(first + i, whole[i * PAGE : (i + 1) * PAGE]) for i in range(last - first + 1)]
        return self.with_pages(changed, max(self.size, end))

    def resize(self, size: int) -> Content:
        if size >= self.size:
            return Content(size, self.pages, self._sum)
        keep = -(-size // PAGE)
        changed = [(index, _ZERO) for index in self.pages if index >= keep]
        if size % PAGE:
            changed.append((keep - 1, self.page(keep - 1)[: size % PAGE].ljust(PAGE, b"\0")))
        return self.with_pages(changed, size)

    def zero(self, offset: int, length: int) -> Content:
        """Zeros from offset on, without making the file longer; only stored pages are touched."""
        end = min(self.size, offset + length)
        changed = []
        for index in self.pages:
            start = index * PAGE
            low, high = max(offset, start) - start, min(end, start + PAGE) - start
            if low < high:
                page = self.page(index)
                changed.append((index, page[:low] + bytes(high - low) + page[high:]))
        return self.with_pages(changed) if changed else self

    def runs(self) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of each stretch without holes, cut at the file's size."""
        indices = sorted(self.pages)
        start = 0
        for position, index in enumerate(indices):
            if position + 1 == len(indices) or indices[position + 1] != index + 1:
                data = b"".join(self.pages[i][0] for i in indices[start : position + 1])
                offset = indices[start] * PAGE
                yield offset, data[: self.size - offset]
                start = position + 1


EMPTY = Content(0, {}, 0)


@dataclass(frozen=True, slots=True)
class Directory:
    digest: int = 1


@dataclass(frozen=True, slots=True)
class Symlink:
    target: str

    @property
    def digest(self) -> int:
        return _hash(b"symlink\0", os.fsencode(self.target))


DIRECTORY = Directory()
ImageEntry = Content | Directory | Symlink


def _entry_hash(path: str, entry: ImageEntry) -> int:
    kind = b"F" if isinstance(entry, Content) else b"D" if isinstance(entry, Directory) else b"L"
    return _hash(kind, entry.digest.to_bytes(16, "little"), os.fsencode(path))


class Image:
    """A folder's whole content: relative path → entry. Immutable; equal images have equal digests."""

    __slots__ = ("digest", "entries")

    def __init__(self, entries: dict[str, ImageEntry], digest: int | None = None) -> None:
        self.entries = entries
        self.digest = (
            sum(_entry_hash(*item) for item in entries.items()) & _MASK if digest is None else digest
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and self.digest == other.digest

    def __hash__(self) -> int:
        return self.digest & 0x7FFFFFFFFFFFFFFF

    def __repr__(self) -> str:
        return f"Image({len(self.entries)} entries, {self.digest:032x})"

    def replacing(self, new: Mapping[str, ImageEntry | None]) -> Image:
        """This image with some entries replaced, added or (None) removed."""
        entries, digest = self.entries.copy(), self.digest
        for path, entry in new.items():
            old = entries.pop(path, None)
            if old is not None:
                digest -= _entry_hash(path, old)
            if entry is not None:
                entries[path] = entry
                digest += _entry_hash(path, entry)
        return Image(entries, digest & _MASK)

    def difference(self, other: Image) -> dict[str, tuple[ImageEntry | None, ImageEntry | None]]:
        """Paths whose entries differ: (here, there)."""
        return {
            path: (self.entries.get(path), other.entries.get(path))
            for path in sorted(self.entries.keys() | other.entries.keys())
            if self.entries.get(path) != other.entries.get(path)
        }


@dataclass(frozen=True, slots=True)
class Base:
    """A folder as it was when recording began. `inos` has every entry's inode number; the folder itself is
    ""."""

    image: Image
    inos: dict[str, int]


def scan(folder: Path) -> Base:
    """Read a folder. Holes stay holes; sockets, pipes and devices are left out, as no disk keeps them."""
    entries: dict[str, ImageEntry] = {}
    inos = {"": folder.stat().st_ino}
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(folder / below) as found:
            for item in found:
                path = f"{below}/{item.name}" if below else item.name
                try:
                    entry = _read_entry(item)
                    inode = item.inode()
                except FileNotFoundError:
                    continue
                if entry is None:
                    continue
                entries[path], inos[path] = entry, inode
                if entry is DIRECTORY:
                    waiting.append(path)
    return Base(Image(entries), inos)


def laid_out(folder: Path, image: Image) -> Base:
    """A folder that was just made equal to this image, as `scan` would read it."""
    inos = {path: (folder / path).lstat().st_ino for path in image.entries}
    return Base(image, {"": folder.stat().st_ino, **inos})


def _read_entry(item: os.DirEntry[str]) -> ImageEntry | None:
    if item.is_symlink():
        return Symlink(str(Path(item.path).readlink()))
    if item.is_dir():
        return DIRECTORY
    return read_sparse(Path(item.path)) if item.is_file() else None


def read_sparse(path: Path) -> Content:
    """One file's content, reading only what is not a hole."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        content, at = EMPTY.resize(size), 0
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(fd, at, os.SEEK_HOLE)
            while at < end and (data := os.pread(fd, min(end - at, 1 << 24), at)):
                content = content.write(at, data)
                at += len(data)
            at = max(at, end)
        return content
    finally:
        os.close(fd)


class TooLargeError(Exception):
    """An image would take more room than the caller allows."""


def materialise(
    image: Image, folder: Path, *, limit_bytes: int = 1 << 30, owner: tuple[int, int] | None = None
) -> None:
    """Write an image into an empty folder, holes as holes. `owner` (uid, gid) gets everything, with mode
    0700/0600."""
    wanted = sum(entry.stored_bytes for entry in image.entries.values() if isinstance(entry, Content))
    if wanted > limit_bytes:
        raise TooLargeError(
            f"the image holds {wanted} bytes, the limit is {limit_bytes}: raise limit_bytes to write it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(image.entries):
        write_entry(str(folder / path), image.entries[path], owner)
    if owner:
        os.chown(folder, *owner)
        folder.chmod(0o700)


def rewrite(folder: Path, now: Image, then: Image, *, owner: tuple[int, int] | None = None) -> None:
    """Turn a folder that holds one image into another by writing only what differs: a thousand files of PostgreSQL
    stay where they are."""
    changed = now.difference(then)
    for path in sorted(changed, reverse=True):  # a directory's entries come before the directory itself
        before, _ = changed[path]
        if before is DIRECTORY:
            shutil.rmtree(folder / path)
        elif before is not None:
            (folder / path).unlink(missing_ok=True)
    for path in sorted(changed):
        _, after = changed[path]
        if after is not None:
            write_entry(str(folder / path), after, owner)


def write_entry(
    path: str, entry: ImageEntry, owner: tuple[int, int] | None = None, *, forget_time: bool = False
) -> os.stat_result:
    """Put one entry where nothing is yet, and return what was made. `forget_time` sets a file's time of change to 1970,
    so that any later change gives it another time, however coarse the file system's clock is."""
    if isinstance(entry, Content):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            end = 0
            for offset, data in entry.runs():
                end = offset + os.pwrite(fd, data, offset)
            if end < entry.size:
                os.ftruncate(fd, entry.size)
            if owner:
                os.fchown(fd, *owner)
            if forget_time:
                os.utime(fd, ns=(0, 0))
            return os.fstat(fd)
        finally:
            os.close(fd)
    if isinstance(entry, Directory):
        Path(path).mkdir(0o700)
    else:
        Path(path).symlink_to(entry.target)
    if owner:
        os.chown(path, *owner, follow_symlinks=False)
    return os.lstat(path)
