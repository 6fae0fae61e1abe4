"""A recorded run as a folder: to explore it again, later or elsewhere, without the engine that made it.

recording/
  base/         the data folder as it was when recording began
  base.json     its inode numbers, by which the log names files
  log           the records, as the recorder wrote them
"""

from __future__ import annotations

import json
import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recollect.regular_files import open_file, read_file
from recollect.verify.disk.image import Base, materialise, scan
from recollect.verify.disk.recorder import Recorder
from recollect.verify.disk.records import HEADER_BYTES, DamagedRecording, Header, Record, read_records


@dataclass(frozen=True)
class Recording:
    """Everything that crash states are made of."""

    base: Base
    records: tuple[Record, ...]

    @classmethod
    def of(cls, recorder: Recorder) -> Recording:
        return cls(recorder.base, tuple(recorder.read()))

    @classmethod
    def load(cls, folder: Path) -> Recording:
        """Raises `DamagedRecording` if these are not the files that `save` wrote."""
        base = Base(scan(folder / "base").image, _inodes(folder / "base.json"))
        with open_file(folder / "log") as file:
            if file.seek(0, os.SEEK_END) < HEADER_BYTES:
                raise DamagedRecording(f"{folder / 'log'} is shorter than the head of a disk log")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as log:
                header = Header.from_buffer_copy(log)
                return cls(base, tuple(read_records(log, header)))


def _inodes(file: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(read_file(file), type=dict[str, int])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedRecording(f"{file} is damaged: {error}") from error


def save(recorder: Recorder, folder: Path) -> None:
    """Write a recording into a new folder."""
    folder.mkdir(parents=True)
    materialise(recorder.base.image, folder / "base")
    (folder / "base.json").write_text(json.dumps(recorder.base.inos))
    (folder / "log").write_bytes(recorder.log_bytes())
