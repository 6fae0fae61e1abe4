"""The redo log as Python sees it: the layout that `shim/shim.h` shares with us, and a reader.

The log is one file. Its header holds the injections and the state of the engine's processes; after it come
records, each reserved by one atomic addition. A process that was killed while it wrote a record leaves a
gap of unknown length; every record begins with the log's own random number, so the reader finds the next
one.
"""

from __future__ import annotations

import ctypes
import enum
import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

LAYOUT_VERSION = 3
HEADER_BYTES = 65536
_RECORD = struct.Struct("<QIIQIIHHHHQqQQ")


class Op(enum.IntEnum):
    """What a record says was done; the fields each one uses are listed in `shim/shim.h`."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    ALLOCATE = 4
    SYNC = 5
    SYNC_END = 6
    RENAME = 7
    UNLINK = 8
    MKDIR = 9
    RMDIR = 10
    LINK = 11
    SYMLINK = 12
    CLOSE = 13
    MARK = 14


_OPS = frozenset(Op)


class Flag(enum.IntFlag):
    """Flags of a record. For ALLOCATE the field holds the mode of fallocate(2) instead."""

    SYNCED = 1
    SNAPSHOT = 2
    DATA_ONLY = 4
    EVERYTHING = 8
    EXCHANGE = 16


FALLOC_KEEP_SIZE = 0x01
FALLOC_PUNCH_HOLE = 0x02
FALLOC_COLLAPSE_RANGE = 0x08
FALLOC_ZERO_RANGE = 0x10
FALLOC_INSERT_RANGE = 0x20


class Record(NamedTuple):
    """One call of the engine, or one mark of the runner."""

    op: Op
    path1: str = ""
    path2: str = ""
    ino: int = 0
    offset: int = 0
    length: int = 0
    data: bytes = b""
    flags: int = 0
    time_ns: int = 0
    pid: int = 0
    tid: int = 0


class _Flight(ctypes.Structure):
    _fields_ = (("op", ctypes.c_uint64), ("ino", ctypes.c_uint64))


class _ProcessSlot(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_int64), ("start", ctypes.c_uint64))


class Header(ctypes.Structure):
    """The log's header, mapped: assigning to a field changes what the shim does at its next call."""

    magic: int
    capacity: int
    tail: int
    count: int
    kill_at: int
    torn_percent: int
    sync_delay_us: int
    sync_errno: int
    sync_error_after: int
    space_left: int
    skip_sync: int
    aim_ino: int
    aim_writes: int
    aim_full: int
    halted: int
    io_uring: int
    process_count: int
    flight_count: int
    flights: ctypes.Array[_Flight]
    unseen: ctypes.Array[ctypes.c_uint64]
    processes: ctypes.Array[_ProcessSlot]
    changes: ctypes.Array[ctypes.c_uint64]
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("magic", "capacity", "tail", "count")),
        *((name, ctypes.c_int64) for name in ("kill_at", "torn_percent", "sync_delay_us", "sync_errno")),
        *((name, ctypes.c_int64) for name in ("sync_error_after", "space_left", "skip_sync")),
        ("aim_ino", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in ("aim_writes", "aim_full")),
        *((name, ctypes.c_uint64) for name in ("halted", "io_uring", "process_count", "flight_count")),
        ("flights", _Flight * 256),
        ("unseen", ctypes.c_uint64 * 1024),
        ("processes", _ProcessSlot * 1024),
        ("changes", ctypes.c_uint64 * 1024),
    )


LAYOUT = LAYOUT_VERSION * 1_000_000 + ctypes.sizeof(Header)


class LogFullError(Exception):
    """The engine did more than the log can hold; nothing may be concluded from what it does hold."""


class DamagedRecording(Exception):
    """The files of a recorded run are not as the recorder wrote them; nothing may be concluded from them."""


def read_records(log: mmap.mmap, header: Header) -> Iterator[Record]:
    """Yield the complete records in the order in which they were reserved."""
    tail, capacity = header.tail, header.capacity
    if tail > capacity:
        raise LogFullError(
            f"the disk log holds {capacity} bytes and the engine needed {tail}; "
            "record a shorter run, or give Recorder a larger capacity_bytes"
        )
    if not HEADER_BYTES <= tail <= len(log):
        raise DamagedRecording(f"the disk log has {len(log)} bytes and says that it ends at {tail}")
    magic = header.magic
    needle = struct.pack("<Q", magic)
    at = HEADER_BYTES
    while at < tail:
        if at + _RECORD.size > tail or _RECORD.unpack_from(log, at)[0] != magic:
            at = _next_record(log, needle, at, tail)
            continue
        record, total = _record_at(log, at, tail)
        if record is not None:
            yield record
        at += total


def _record_at(log: mmap.mmap, at: int, tail: int) -> tuple[Record | None, int]:
    """The record, or None if it is half written, and its length. A process writes the magic number after everything
    else, so a record that has it must be consistent."""
    _, total, ready, time_ns, pid, tid, op, flags, len1, len2, ino, offset, length, data_len = (
        _RECORD.unpack_from(log, at)
    )
    start = at + _RECORD.size
    end = start + len1 + len2 + data_len
    if total % 8 or not end <= at + total <= tail or op not in _OPS:
        raise DamagedRecording(f"the disk log's record at {at} is damaged")
    if not ready:
        return None, total
    path1 = os.fsdecode(log[start : start + len1])
    path2 = os.fsdecode(log[start + len1 : start + len1 + len2])
    data = log[start + len1 + len2 : end]
    return Record(Op(op), path1, path2, ino, offset, length, data, flags, time_ns, pid, tid), total


def _next_record(log: mmap.mmap, needle: bytes, at: int, tail: int) -> int:
    while (at := log.find(needle, at + 1, tail)) >= 0:
        if at % 8 == 0:
            return at
    return tail
