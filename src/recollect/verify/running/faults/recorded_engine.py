"""Runs whose engine is recorded: what it does to its data folder, call by call (`recollect.verify.disk`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.verify import providers
from recollect.verify.disk.building import ShimUnavailableError, shim_path
from recollect.verify.disk.recorder import Recorder
from recollect.verify.disk.visibility import cannot_see
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host.errors import EngineError
from recollect.verify.running.faults.fault import container_of, ours_only
from recollect.verify.running.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.running.run import Run

_IN_PYTHON = ("sqlite", "chroma")
_BESIDE_VECTORS = ("chroma",)
"""Servers that keep vectors and no rows: a store puts its rows beside them, on the same disk, by itself."""


def recording_obstacle(scenario: Scenario) -> str | None:
    if (reason := ours_only(scenario)) is not None:
        return reason
    if (carrier := container_of(scenario)) is not None:
        return f"the engine runs by {carrier}: the disk recorder needs it as a process of this machine"
    try:
        shim_path()
        build = providers.find(scenario.engine, scenario.provider)
    except ShimUnavailableError as reason_why:
        return str(reason_why)
    except EngineError:
        return None  # the matrix has its own words for an engine that is not there
    if build.engine in _IN_PYTHON:
        return cannot_see(Path(sys.executable))
    return cannot_see(Path(build.location))


def record(run: Run) -> None:
    if isinstance(run.engine, PostgresEngine):
        run.engine.prepare()
    assert run.engine.data is not None
    run.engine.data.mkdir(parents=True, exist_ok=True)
    if run.scenario.variant == "strict" and not run.engine.embedded:
        # Redis makes `appendonlydir` at its first start and never syncs the folder above it: strictly, all its data
        # hangs on that one name for ever. What is asked here is what happens to an engine that has been up before.
        run.engine.start()
        run.engine.stop()
    run.recorder = Recorder(run.engine.data)
    run.at_end(run.recorder.close)
    run.engine_env.update(run.recorder.env())
    if run.engine.embedded or _clients_share_the_disk(run):
        run.record_clients(run.recorder.env())


def recorder_of(run: Run) -> Recorder:
    assert run.recorder is not None, "the fault's `record` hook makes it"
    return run.recorder


def down(run: Run) -> None:
    """The engine, the clients that an embedded one lives in, and the kit's own process on its files."""
    run.kill_engine()
    run.engine.kill()
    if _clients_share_the_disk(run):
        run.kill_clients()


def up(run: Run) -> None:
    """What comes after the fault need not be recorded, and runs at full speed."""
    for name in recorder_of(run).env():
        run.engine_env.pop(name, None)
    run.record_clients(None)
    run.start_engine(run.restart)
    if _clients_share_the_disk(run):
        run.restart_clients()


def _clients_share_the_disk(run: Run) -> bool:
    return not run.engine.embedded and run.scenario.engine_kind in _BESIDE_VECTORS
