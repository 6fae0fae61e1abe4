"""One crash state in plain words: what was acknowledged, what came after, and what was not yet on the disk.

People believe a judgement that they can follow call by call, so every line names the file and the offset. Of what was
not yet synced, it says what was written before the last acknowledgement: that is what the store had promised to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recollect.verify.disk.image import Base
from recollect.verify.disk.model import Mode, Model
from recollect.verify.disk.nodes import File, LengthChange, NameChange
from recollect.verify.disk.records import Flag, Op, Record
from recollect.verify.disk.states import State

_CALLS_SHOWN = 12
ASK, ACK = "ask ", "ack "


@dataclass(frozen=True, slots=True)
class Explanation:
    """The story of one crash state. Each line can be read on its own."""

    acknowledged: str
    calls: tuple[str, ...]
    """From the last acknowledgement to the power loss, in order."""
    next_call: str
    unsynced: tuple[str, ...]
    """What the page cache had and the disk was not obliged to have."""
    left: str

    def __str__(self) -> str:
        calls = [f"  {line}" for line in self.calls] or ["  nothing"]
        unsynced = [f"  {line}" for line in self.unsynced] or ["  nothing"]
        return "\n".join(
            [
                f"Acknowledged last: {self.acknowledged}",
                "After that",
                *calls,
                f"  power loss, before {self.next_call}",
                "Not yet on the disk at that moment",
                *unsynced,
                f"What the power loss left: {self.left}",
            ]
        )


def explain(
    base: Base,
    records: Sequence[Record],
    state: State,
    mode: Mode,
    *,
    exclude: Callable[[str], bool] = lambda path: False,
) -> Explanation:
    """Replay up to the crash and say what happened around it. `exclude` leaves out paths that recovery ignores."""
    acks = [
        index
        for index, record in enumerate(records[: state.point])
        if record.op is Op.MARK and record.path1.startswith(ACK)
    ]
    since = acks[-1] + 1 if acks else 0
    model = Model(base, mode).replay(records[:since])
    acked_seq = model.seq if acks else -1
    calls: list[str] = []
    for record in records[since : state.point]:
        calls.append(describe(record, model))
        model.step(record)
    if len(calls) > _CALLS_SHOWN:
        hidden = len(calls) - _CALLS_SHOWN + 1
        calls[:hidden] = [f"… {hidden} calls"]
    after = next((one for one in records[state.point :] if one.op is not Op.MARK), None)
    return Explanation(
        records[acks[-1]].path1.removeprefix(ACK) if acks else "nothing",
        tuple(calls),
        describe(after, model) if after is not None else "anything else was called",
        tuple(_unsynced(model, acked_seq, exclude)),
        f"{state.kind}{f': {state.detail}' if state.detail else ''}",
    )


def describe(record: Record, model: Model) -> str:
    """One call, with its file and offset."""
    where = model.path_of(record.ino)
    if where is None:
        where = f"inode {record.ino}"
    op = record.op
    if op is Op.WRITE:
        how = (
            " (synchronous)"
            if record.flags & Flag.SYNCED
            else " (seen at a flush)"
            if record.flags & Flag.SNAPSHOT
            else ""
        )
        return f"write of {len(record.data)} bytes to {where} at {record.offset}{how}"
    if op in (Op.SYNC, Op.SYNC_END):
        return _sync(record, where)
    if op is Op.TRUNCATE:
        return f"truncate of {where} to {record.length} bytes"
    if op is Op.ALLOCATE:
        return f"fallocate of {where}, {record.length} bytes at {record.offset}"
    if op is Op.RENAME:
        return f"rename of {record.path1} to {record.path2}"
    if op is Op.CLOSE:
        return f"close of {where}"
    if op is Op.MARK:
        return _mark(record.path1)
    return f"{op.name.lower()} of {record.path1 or where}"


def _mark(text: str) -> str:
    if text.startswith(ASK):
        return f"the client asks to append {text.removeprefix(ASK)}"
    return f"acknowledged: {text.removeprefix(ACK)}" if text.startswith(ACK) else f"({text})"


def _sync(record: Record, where: str) -> str:
    if record.flags & Flag.EVERYTHING:
        what = "sync of everything"
    else:
        what = f"{'fdatasync' if record.flags & Flag.DATA_ONLY else 'fsync'} of {where or 'the data folder'}"
    if record.op is Op.SYNC:
        return f"{what} begins"
    return f"{what} returns" if record.offset == 0 else f"{what} fails with errno {record.offset}"


def _unsynced(model: Model, acked_seq: int, exclude: Callable[[str], bool]) -> list[str]:
    lines = []
    for path, node in model.cache_view.names.items():
        if isinstance(node, File) and node.pending and not exclude(path):
            writes = [change.record for change in node.pending if change.record.op is Op.WRITE]
            size = sum(len(record.data) for record in writes)
            first = min((record.offset for record in writes), default=0)
            count = len(node.pending)
            early = sum(change.seq <= acked_seq for change in node.pending)
            lines.append(
                f"{path}: {count} write{'s' * (count > 1)} of {size} bytes in all, the first at {first}"
                f"{_before(early, count)}"
            )
    for entry in model.journal:
        before = _before(int(entry.seq <= acked_seq), 1)
        if isinstance(entry, NameChange):
            if not exclude(entry.what.split(" ")[-1]):
                lines.append(f"{entry.what}: the directory was not synced{before}")
        elif isinstance(entry, LengthChange):
            path = next(iter(model.cache_view.paths_of(entry.file)), "a file without a name")
            if not exclude(path):
                lines.append(f"{path}: a change of its length{before}")
    return lines


def _before(early: int, count: int) -> str:
    if early == 0:
        return ""
    return ", made before the acknowledgement" if early == count else f", {early} of them made before it"
