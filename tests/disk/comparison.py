"""One run, two power losses: the durability model's, and the real kernel's.

An engine runs on a real file system under the recorder. The file system is shut down without a flush, mounted
again and read; the model replays the log. Both must hold the same files, byte for byte, and an engine started
on either must have lost the same rows.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from recollect.verify.disk.image import ImageEntry, scan
from recollect.verify.disk.model import Model
from recollect.verify.engines.protocols import Pausable
from tests.disk.probes import Loss
from tests.disk.realdisk import FileSystem, RealDisk
from tests.disk.recorded_run import Enough, RecordedRun


@dataclass(frozen=True, slots=True)
class Case:
    spec: str
    policy: str
    enough: Enough

    @property
    def name(self) -> str:
        return f"{self.spec} {self.policy}"


CASES = (
    Case("redis", "rdb", Enough(rows=200)),
    Case("redis", "aof-no", Enough(seconds=0.4)),
    Case("redis", "aof-everysec", Enough(seconds=1.2)),
    Case("redis", "aof-always", Enough(seconds=0.4)),
    Case("sqlite", "wal-full", Enough(rows=100)),
    Case("sqlite", "wal-normal", Enough(rows=100)),
    Case("sqlite", "delete-full", Enough(rows=50)),
    Case("sqlite", "delete-extra", Enough(rows=50)),
    Case("postgres@18", "default", Enough(seconds=0.5)),
    Case("postgres@18", "async-commit", Enough(seconds=0.7)),
    Case("chroma", "embedded", Enough(rows=20)),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`differing` maps a path to (model's entry, kernel's entry); empty when the two agree."""

    case: Case
    file_system: FileSystem
    model_loss: Loss
    real_loss: Loss
    differing: dict[str, tuple[ImageEntry | None, ImageEntry | None]]


def compare(case: Case, file_system: FileSystem) -> Comparison:
    with RealDisk(file_system) as disk, RecordedRun(case.spec, case.policy, disk=disk) as run:
        data = run.engine.data
        assert data is not None
        run.write(case.enough)
        # Frozen first: what a background thread does between the power loss and the kill is on no disk.
        if isinstance(run.engine, Pausable):
            run.engine.pause()
        disk.power_loss()
        run.engine.kill()
        disk.recover()
        real = scan(data).image
        model = Model(run.recorder.base, "ext4").replay(run.recorder.read())
        if model.durable() != real and model.syncs_in_flight:
            model.finish_syncs()  # frozen between the end of an fsync and its record
        differing = model.durable().difference(real)
        real_loss = run.read_back(data)
        with tempfile.TemporaryDirectory(prefix="recollect-image-") as folder:
            Path(folder).chmod(0o711)
            model_loss = run.recovered(model.durable(), Path(folder) / "data")
        return Comparison(case, file_system, model_loss, real_loss, differing)
