"""Every distinct disk that a power loss during one recorded run could leave.

Between two records the disk may be any of many states; all crash points of a run together are far too many
to try, and nearly all are equal. So states are built as small differences from the model's two images, told
apart by content digest, and each distinct one is kept once, at the latest point where it can occur (where
the most has been acknowledged, so a judgement there covers all earlier points).

level 1  at each point: everything unsynced lost, nothing lost
level 2  and: names without data, data without names, the journal cut anywhere (`ext4`) or one name lost
         (`strict`), one page lost, what was appended read back as zeros
level 3  and: one write lost, one write alone kept, the last write torn
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.verify.disk.image import PAGE, Base, Content, Image, ImageEntry
from recollect.verify.disk.model import Mode, Model
from recollect.verify.disk.nodes import (
    DataWritten,
    File,
    Folder,
    LengthChange,
    NameChange,
    Node,
    Pending,
    applied,
    entry_of,
    flatten,
)
from recollect.verify.disk.records import Op, Record

LEVELS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class State:
    """One crash state: the disk after the first `point` records, of which `marks` were acknowledgements or
    other marks."""

    point: int
    marks: int
    kind: str
    detail: str
    image: Image

    @property
    def key(self) -> tuple[int, int]:
        """The disk, and how many marks came before it: what a judgement depends on."""
        return self.image.digest, self.marks

    def __str__(self) -> str:
        return f"{self.kind}{': ' if self.detail else ''}{self.detail}, after record {self.point}"


@dataclass(frozen=True, slots=True)
class StatesFound:
    """Distinct crash states, in the order of their points."""

    states: list[State]
    reached: int | None = None
    """The record at which the search stopped early, where the next one starts. None: all were found."""


def states(
    base: Base,
    records: Sequence[Record],
    mode: Mode = "ext4",
    level: int = 1,
    *,
    exclude: Exclude | None = None,
    start: int = 0,
) -> list[State]:
    """All distinct crash states of a run."""
    return find(base, records, mode, level, exclude=exclude, start=start).states


def find(
    base: Base,
    records: Sequence[Record],
    mode: Mode,
    level: int,
    *,
    exclude: Exclude | None = None,
    start: int = 0,
    until: Callable[[int], bool] = lambda found: False,
) -> StatesFound:
    """Distinct crash states in the order of their points. `exclude` leaves out paths that recovery ignores;
    `start` is the number of records to replay before the first crash (an engine's own set-up). `until` is called with
    the number of states so far, before each point but the first, and ends the search there by returning true.

    Marks and the beginnings of syncs change no disk: states are taken just before the next record that does.
    """
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}, expected one of {LEVELS}")
    model, marks = Model(base, mode), 0
    distinct: dict[int, State] = {}
    for point in range(len(records) + 1):
        record = records[point] if point < len(records) else None
        if record is not None and record.op is Op.MARK:
            marks += 1
        elif point >= start and (record is None or record.op is not Op.SYNC):
            if distinct and until(len(distinct)):
                return StatesFound(list(distinct.values()), point)
            for state in _at(model, level, point, marks, exclude or _nothing):
                seen = state if exclude is None else _without(state, exclude)
                distinct.pop(seen.image.digest, None)
                distinct[seen.image.digest] = seen
        if record is not None:
            model.step(record)
    return StatesFound(list(distinct.values()))


def _without(state: State, exclude: Exclude) -> State:
    dropped: dict[str, ImageEntry | None] = {path: None for path in state.image.entries if exclude(path)}
    return replace(state, image=state.image.replacing(dropped))


def _nothing(path: str) -> bool:
    return False


Exclude = Callable[[str], bool]


def _at(model: Model, level: int, point: int, marks: int, exclude: Exclude) -> Iterator[State]:
    def found(kind: str, detail: str, image: Image) -> State:
        return State(point, marks, kind, detail, image)

    yield found("all unsynced lost", "", model.durable())
    if level >= 2:
        yield from (found(*case) for case in _names(model))
        yield from (found(*case) for case in _pages(model, exclude))
    if level >= 3:
        yield from (found(*case) for case in _writes(model, exclude))
    yield found("nothing lost", "", model.cached())


_Variation = tuple[str, str, Image]
_DESCRIBED = {LengthChange: "a change of length", DataWritten: "data written by the file system itself"}


def _waiting(model: Model, exclude: Exclude) -> Iterator[tuple[str, File]]:
    """Files that have unsynced data, by one of their names."""
    for path, node in model.cache_view.names.items():
        if exclude(path):
            continue
        if isinstance(node, File) and node.pending and model.cache_view.paths_of(node)[0] == path:
            yield path, node


def _with(model: Model, file: File, content: Content) -> Image:
    return model.cached().replacing(dict.fromkeys(model.cache_view.paths_of(file), content))


def zero_tails(model: Model) -> Image:
    """Names and lengths reached the disk, the data behind them did not: all that was appended reads as zeros."""
    changed: dict[str, ImageEntry | None] = {}
    for _, file in _waiting(model, _nothing):
        lost = file.disk.resize(min(file.disk.size, file.cached.size)).resize(file.cached.size)
        changed.update(dict.fromkeys(model.cache_view.paths_of(file), lost))
    return model.cached().replacing(changed)


# ---- level 2 ----


def _names(model: Model) -> Iterator[_Variation]:
    journal = model.journal
    if model.mode == "ext4":
        for taken in range(1, len(journal) + 1):
            last = journal[taken - 1]
            what = _DESCRIBED[type(last)] if not isinstance(last, NameChange) else last.what
            yield f"journal ends after {what}", "unsynced data lost", _journaled(model, taken)
    else:
        yield "names kept", "unsynced data lost", _tree(model, flatten(model.top, cached=True), cached=False)
        for dropped, entry in enumerate(journal):
            assert isinstance(entry, NameChange)
            kept = [
                change for i, change in enumerate(journal) if i != dropped and isinstance(change, NameChange)
            ]
            yield "one name lost", entry.what, _tree(model, _names_after(model, kept), cached=True)
    yield "data kept", "unsynced names lost", _data_only(model)


def _names_after(model: Model, changes: Sequence[NameChange]) -> dict[str, Node]:
    overrides: dict[Folder, dict[str, Node]] = {}
    for change in changes:
        for edit in change.edits:
            if edit.folder not in overrides:
                overrides[edit.folder] = dict(edit.folder.disk)
            edit.apply(overrides[edit.folder])
    return flatten(model.top, overrides)


def _tree(model: Model, names: dict[str, Node], *, cached: bool) -> Image:
    """An image of these names, as a difference from the nearer of the model's two."""
    near = model.cached() if cached else model.durable()
    changed: dict[str, ImageEntry | None] = {path: None for path in near.entries if path not in names}
    for path, node in names.items():
        entry = entry_of(node, cached=cached)
        if near.entries.get(path) is not entry:
            changed[path] = entry
    return near.replacing(changed)


def _journaled(model: Model, taken: int) -> Image:
    """ext4: the first entries of the journal reached the disk, and data only where the journal takes it along."""
    entries = model.journal[:taken]
    image = _tree(model, _names_after(model, [e for e in entries if isinstance(e, NameChange)]), cached=False)
    contents: dict[File, Content] = {}
    for entry in entries:
        if isinstance(entry, LengthChange):
            if entry.seq > entry.file.synced_seq:
                contents[entry.file] = applied(contents.get(entry.file, entry.file.disk), entry.record)
        elif isinstance(entry, DataWritten) and entry.seq > entry.file.synced_seq:
            contents[entry.file] = entry.content
    names = _names_after(model, [e for e in entries if isinstance(e, NameChange)]) if contents else {}
    return image.replacing(
        {path: contents[node] for path, node in names.items() if isinstance(node, File) and node in contents}
    )


def _data_only(model: Model) -> Image:
    """All data was written back, but no metadata: on ext4 a file's length is metadata, too."""
    changed: dict[str, ImageEntry | None] = {}
    for path, node in model.disk_view.names.items():
        if isinstance(node, File) and node.cached is not node.disk:
            content = node.cached
            if model.mode == "ext4" and content.size != node.disk.size:
                content = content.resize(min(content.size, node.disk.size)).resize(node.disk.size)
            changed[path] = content
    return model.durable().replacing(changed)


def _pages(model: Model, exclude: Exclude) -> Iterator[_Variation]:
    for path, file in _waiting(model, exclude):
        for index in sorted({index for change in file.pending for index in change.pages}):
            if index * PAGE < file.cached.size:
                yield (
                    "one page lost",
                    f"{path} at {index * PAGE}",
                    _with(model, file, _without_page(file, index)),
                )
        if file.cached.size > file.disk.size:
            zeros = file.cached.resize(file.disk.size).resize(file.cached.size)
            yield "appended data reads as zeros", f"{path} from {file.disk.size}", _with(model, file, zeros)


def _without_page(file: File, index: int) -> Content:
    old = file.disk.page(index)
    beyond = file.cached.size - index * PAGE
    if beyond < PAGE:
        old = old[:beyond].ljust(PAGE, b"\0")
    return file.cached.with_pages([(index, old)])


# ---- level 3 ----


def _writes(model: Model, exclude: Exclude) -> Iterator[_Variation]:
    latest: tuple[str, File, Pending] | None = None
    for path, file in _waiting(model, exclude):
        without = _Without(file)
        for change in file.pending:
            record = change.record
            size = len(record.data) or record.length
            where = f"{record.op.name.lower()} of {size} bytes to {path} at {record.offset}"
            yield "one write lost", where, _with(model, file, without(change))
            yield "one write kept", where, _with(model, file, applied(file.disk, record))
        last = file.pending[-1]
        if last.record.op is Op.WRITE and (latest is None or last.seq > latest[2].seq):
            latest = (path, file, last)
    if latest is not None:
        path, file, last = latest
        before = _Without(file)(last)
        for kept in _tears(last.record):
            torn = applied(before, last.record._replace(data=last.record.data[:kept]))
            what = f"{kept} of {len(last.record.data)} bytes to {path} at {last.record.offset}"
            yield "last write torn", what, _with(model, file, torn)


class _Without:
    """A file's content without one of its pending changes. Only the pages that this change wrote are
    replayed, unless the file also changed its length in other ways."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._only_writes = (
            all(change.record.op is Op.WRITE for change in file.pending) and not file.unwritten
        )
        self._writers: dict[int, list[Pending]] = {}
        ends = sorted((_end(change) for change in file.pending), reverse=True)
        self._longest, self._second = [*ends, 0, 0][:2]
        for change in file.pending:
            for index in change.pages:
                self._writers.setdefault(index, []).append(change)

    def __call__(self, skipped: Pending) -> Content:
        file = self._file
        if not self._only_writes:
            content = file.disk
            for change in file.pending:
                content = content if change is skipped else applied(content, change.record)
            return content
        end = self._second if _end(skipped) == self._longest else self._longest
        pages = [(index, self._page(index, skipped)) for index in skipped.pages]
        return file.cached.with_pages(pages, max(file.disk.size, end))

    def _page(self, index: int, skipped: Pending) -> bytes:
        page = self._file.disk.page(index)
        for change in self._writers[index]:
            if change is not skipped:
                start = change.record.offset - index * PAGE
                data = change.record.data[max(0, -start) : PAGE - start]
                start = max(0, start)
                page = page[:start] + data + page[start + len(data) :]
        return page


def _end(change: Pending) -> int:
    return change.record.offset + len(change.record.data)


def _tears(record: Record) -> list[int]:
    """A byte, a half, a sector, and the pages of the file."""
    size = len(record.data)
    to_page = PAGE - record.offset % PAGE
    return sorted(cut for cut in {1, size // 2, 512, to_page, size - 1} if 0 < cut < size)
