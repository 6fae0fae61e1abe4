"""One crash state in plain words: what was acknowledged, what came after, and what was not yet on the disk.

A finding is believed when it can be followed call by call, so every line names the file and the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.verify.disk.image import Base
from recollect.verify.disk.model import Mode, Model
from recollect.verify.disk.nodes import File, LengthChange, NameChange
from recollect.verify.disk.records import Flag, Op, Record
from recollect.verify.disk.states import State

_CALLS_SHOWN = 12
_ACK = "ack "


@dataclass(frozen=True, slots=True)
class Explanation:
    """The story of one crash state. Each line stands for itself."""

    acknowledged: str
    calls: tuple[str, ...]
    """From the last acknowledgement to the power loss, in order."""
    unsynced: tuple[str, ...]
    """What the page cache had and the disk was not obliged to have."""
    left: str
    next_call: str

    def __str__(self) -> str:
        calls = [f"  {line}" for line in self.calls] or ["  no call at all"]
        unsynced = [f"  {line}" for line in self.unsynced] or ["  nothing"]
        return "\n".join(
            [
                self.acknowledged,
                "then the engine called",
                *calls,
                f"and the power went before {self.next_call}",
                "not yet synced were",
                *unsynced,
                f"the disk was left with: {self.left}",
            ]
        )


def explain(base: Base, records: Sequence[Record], state: State, mode: Mode) -> Explanation:
    """Replay up to the crash and say what happened around it."""
    acks = [
        index
        for index, record in enumerate(records[: state.point])
        if record.op is Op.MARK and record.path1.startswith(_ACK)
    ]
    since = acks[-1] + 1 if acks else 0
    model = Model(base, mode).replay(records[:since])
    calls: list[str] = []
    for record in records[since : state.point]:
        calls.append(describe(record, model))
        model.step(record)
    if len(calls) > _CALLS_SHOWN:
        hidden = len(calls) - _CALLS_SHOWN + 1
        calls[:hidden] = [f"… {hidden} calls"]
    after = records[state.point] if state.point < len(records) else None
    last = records[acks[-1]].path1.removeprefix(_ACK) if acks else None
    return Explanation(
        f"the last that was acknowledged: {last}" if last else "nothing had been acknowledged yet",
        tuple(calls),
        tuple(_unsynced(model)),
        f"{state.kind}{f' ({state.detail})' if state.detail else ''}",
        describe(after, model) if after is not None else "anything else was called",
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
        return f"({record.path1})"
    return f"{op.name.lower()} of {record.path1 or where}"


def _sync(record: Record, where: str) -> str:
    if record.flags & Flag.EVERYTHING:
        what = "sync of everything"
    else:
        what = f"{'fdatasync' if record.flags & Flag.DATA_ONLY else 'fsync'} of {where or 'the data folder'}"
    if record.op is Op.SYNC:
        return f"{what} begins"
    return f"{what} returns" if record.offset == 0 else f"{what} fails with errno {record.offset}"


def _unsynced(model: Model) -> list[str]:
    lines = []
    for path, node in model.cache_view.names.items():
        if isinstance(node, File) and node.pending:
            writes = [change.record for change in node.pending if change.record.op is Op.WRITE]
            size = sum(len(record.data) for record in writes)
            first = min((record.offset for record in writes), default=0)
            lines.append(f"{len(node.pending)} changes of {path}: {size} bytes, the first at {first}")
    for entry in model.journal:
        if isinstance(entry, NameChange):
            lines.append(f"{entry.what} (its directory is not synced)")
        elif isinstance(entry, LengthChange):
            path = next(iter(model.cache_view.paths_of(entry.file)), "a file without a name")
            lines.append(f"change of length of {path}")
    return lines
