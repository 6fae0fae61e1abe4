"""The disk under a service: its folder is recorded, so that it can lose power, be slow, be full, or fail to sync.

The recorder (`recollect.verify.disk`) is preloaded into every process of the service. A power loss is the death of all
of them, after which the folder becomes what the disk was obliged to hold; see `docs/power-loss.md`. A recorder that
missed anything says so instead: its record would prove nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from recollect.verify.disk.building import ShimUnavailableError
from recollect.verify.disk.image import rewrite, scan
from recollect.verify.disk.model import Mode, Model
from recollect.verify.disk.recorder import Faults, Recorder
from recollect.verify.disk.selfcheck import check_sight
from recollect.verify.disk.visibility import cannot_see
from recollect.verify.suite.service_failed import ServiceFailed

LOG_BYTES = 256 << 20


class RecordedFolder:
    """One folder, recorded anew at every start of the service."""

    def __init__(self, root: Path, command: Sequence[str], mode: Mode = "ext4") -> None:
        self._root = root
        self._mode = mode
        self._recorder: Recorder | None = None
        program = shutil.which(command[0])
        reason = None if program is None else cannot_see(Path(program))
        if reason is not None:
            raise ServiceFailed(f"disk=True: {reason}")

    def begin(self) -> dict[str, str]:
        """What the environment of the service needs. What is in the folder now counts as being on the disk."""
        self.close()
        try:
            self._recorder = Recorder(self._root, capacity_bytes=LOG_BYTES)
        except ShimUnavailableError as error:
            raise ServiceFailed(f"disk=True: {error}") from None
        return self._recorder.env()

    def faults(self, faults: Faults) -> None:
        assert self._recorder is not None, "the service has not been started"
        self._recorder.faults(faults)

    def cut_power(self) -> list[str]:
        """Every process is dead: leaves what the disk had to hold, and returns the names of what is different."""
        recorder = self._recorder
        assert recorder is not None, "the service has not been started"
        model = Model(recorder.base, self._mode).replay(recorder.read())
        found = scan(recorder.root)
        blindness = check_sight(recorder, model, found=found)
        if blindness is not None:
            raise ServiceFailed(str(blindness))
        status = recorder.root.stat()
        left = model.durable()
        rewrite(recorder.root, found.image, left, owner=(status.st_uid, status.st_gid))
        return sorted(found.image.difference(left))

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None
