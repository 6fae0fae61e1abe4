"""One recorded run of an engine: numbered rows written until told to stop, then the end.

Used with probes by the known truths, the comparison with the real kernel and the benches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from recollect.verify.disk.explanation import ACK
from recollect.verify.disk.image import Image, materialise
from recollect.verify.disk.model import Mode, Model
from recollect.verify.disk.recorder import Recorder
from recollect.verify.disk.records import Record
from recollect.verify.disk.selfcheck import Blindness, check_sight
from recollect.verify.engines import Engine, EngineOptions, create
from recollect.verify.engines.postgres import PostgresEngine
from tests.disk.probes import Loss, Probe, probe
from tests.disk.realdisk import RealDisk


@dataclass(frozen=True, slots=True)
class Enough:
    """When a run has written enough: after so many rows, or so many seconds."""

    rows: int | None = None
    seconds: float | None = None

    def reached(self, written: int, since_s: float) -> bool:
        by_rows = self.rows is not None and written >= self.rows
        return by_rows or (self.seconds is not None and since_s >= self.seconds)


class RecordedRun:
    """An engine under the recorder. A context manager: the engine and the log go at its end."""

    def __init__(
        self, spec: str, policy: str, *, disk: RealDisk | None = None, skip_sync: bool = False
    ) -> None:
        self._spec, self._policy = spec, policy
        self._stack = ExitStack()
        self.acked = 0
        try:
            self.engine = self._created(EngineOptions(root=disk.folder if disk else None))
            self._make_data(self.engine)
            assert self.engine.data is not None
            self._set_up()
            if disk is not None:
                disk.settle()
            self.recorder = self._stack.enter_context(Recorder(self.engine.data, skip_sync=skip_sync))
            self.engine.start(self.recorder.env())
            self.probe: Probe = probe(self.engine)
            self._stack.callback(self.probe.close)
        except BaseException:
            self.close()
            raise

    def _created(self, options: EngineOptions) -> Engine:
        engine = create(self._spec, self._policy, options=options)
        self._stack.callback(engine.close)
        return engine

    @staticmethod
    def _make_data(engine: Engine) -> None:
        if isinstance(engine, PostgresEngine):
            engine.prepare()
        elif engine.data is not None:
            engine.data.mkdir(parents=True, exist_ok=True)

    def _set_up(self) -> None:
        """Tables are made before the recording, and an engine that stopped in good order is the base."""
        self.engine.start()
        first = probe(self.engine)
        first.prepare()
        first.close()
        self.engine.stop()

    def write(self, enough: Enough, after: Callable[[int], None] | None = None) -> None:
        began = time.monotonic()
        while not enough.reached(self.acked, time.monotonic() - began):
            self.probe.write(self.acked)
            self.recorder.mark(f"{ACK}{self.acked}")
            self.acked += 1
            if after is not None:
                after(self.acked)

    def records(self) -> list[Record]:
        return list(self.recorder.read())

    def model(self, mode: Mode = "ext4") -> tuple[Model, Blindness | None]:
        """The engine must be dead. What the whole log leaves, and whether the recorder saw all of it."""
        model = Model(self.recorder.base, mode).replay(self.recorder.read())
        return model, check_sight(self.recorder, model)

    def recovered(self, image: Image, folder: Path) -> Loss:
        """Start the engine on an image and count what is lost."""
        materialise(image, folder)
        return self.read_back(folder)

    def read_back(self, data: Path) -> Loss:
        engine = self._created(EngineOptions(data=data))
        engine.start()
        again = probe(engine)
        try:
            return Loss.between(self.acked, again.read())
        finally:
            again.close()
            engine.kill()

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> RecordedRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
