"""Runs whose engine is recorded: what it does to its data folder, call by call (`recollect.verify.disk`)."""

from __future__ import annotations

import sys
from pathlib import Path

from recollect.verify import providers
from recollect.verify.disk.building import ShimUnavailableError, shim_path
from recollect.verify.disk.recorder import Recorder
from recollect.verify.disk.visibility import cannot_see
from recollect.verify.engines.carried import CarriedEngine
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host.errors import EngineError
from recollect.verify.running.faults.fault import (
    Injection,
    container_of,
    files_obstacle,
    ours_only,
    reachable_data,
)
from recollect.verify.running.scenario import Scenario
from recollect.verify.target.registry import row_of

_IN_PYTHON = ("sqlite", "chroma")
_BESIDE_VECTORS = ("chroma",)
"""Servers that keep vectors and no rows: the store itself keeps its rows beside them, on the same disk."""


def recording_obstacle(scenario: Scenario) -> str | None:
    if (reason := ours_only(scenario)) is not None:
        return reason
    if (row := row_of(scenario.target)) is not None and row.unrecorded:
        return row.unrecorded
    try:
        shim_path()
        if container_of(scenario) is not None:
            return files_obstacle(scenario)
        build = providers.find(scenario.engine, scenario.provider)
    except ShimUnavailableError as reason_why:
        return str(reason_why)
    except EngineError:
        return None  # the matrix itself reports an engine that is not there
    if build.engine in _IN_PYTHON:
        return cannot_see(Path(sys.executable))
    return cannot_see(Path(build.location))


class Recorded(Injection):
    """A fault for which the engine is recorded."""

    recorder: Recorder

    def record(self) -> None:
        engine, env = self.run.engine, self.run.engine_env
        if isinstance(engine, PostgresEngine):
            engine.prepare()
        carried = isinstance(engine, CarriedEngine)
        if not carried:
            reachable_data(self.run).mkdir(parents=True, exist_ok=True)
        if carried or (self.run.scenario.variant == "strict" and not engine.embedded):
            # Redis makes `appendonlydir` at its first start and never syncs the folder above it: strictly, all its data
            # depends on that one name for ever. The question here is what happens to an engine that has run before.
            # A container's folder is made, and filled by its image, at its first start.
            engine.start()
            engine.stop()
        self.recorder = Recorder(reachable_data(self.run))
        self.run.at_end(self.recorder.close)
        env.update(self.recorder.env())
        if engine.embedded or self._clients_share_the_disk:
            self.run.clients.record(self.recorder.env())

    def attach(self) -> None:
        if (
            isinstance(self.run.engine, CarriedEngine)
            and hasattr(self, "recorder")
            and not self.recorder.pids()
        ):
            self.run.skip(
                "no process in the container has loaded the disk recorder: its server is linked statically, or"
                " changes its user by a set-user-id program"
            )

    def down(self, since: float | None = None) -> None:
        """Kills the engine, the clients that an embedded one lives in, and the kit's own process on its files."""
        self.run.kill_engine(since=since)
        self.run.engine.kill()
        if self._clients_share_the_disk:
            self.run.clients.kill_all()

    def up(self) -> None:
        """Starts everything again, unrecorded: what comes after the fault can run at full speed."""
        engine, env = self.run.engine, self.run.engine_env
        for name in self.recorder.env():
            env.pop(name, None)
        self.run.clients.record(None)
        self.run.start_engine(lambda: engine.restart(env or None))
        if self._clients_share_the_disk:
            self.run.restart_clients()

    @property
    def _clients_share_the_disk(self) -> bool:
        return not self.run.engine.embedded and self.run.scenario.engine_kind in _BESIDE_VECTORS
