"""The moment of a flush: Chroma rewrites its vector files in place once enough changes have accumulated.

The runner could not see that moment in time; the recorder, inside the process that writes, can. It is given a file and
a number of writes, drawn from the seed, and acts right after the last of them: in the middle of the file.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

from recollect.verify.disk.recorder import Aim, Faults
from recollect.verify.host.busy import patient_s
from recollect.verify.running.faults.fault import only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.faults.recorded_engine import Recorded, recording_obstacle
from recollect.verify.running.scenario import Scenario

FLUSH = "flush"
FLUSH_TIMEOUT_S = 25.0
ALONE = {FLUSH: (1, 0)}
"""One process that writes: nothing but the moment is to blame."""
_VECTORS, _FLUSHED = "data_level0.bin", "index_metadata.pickle"
"""The second file exists once the first has been flushed; until then everything is still in Chroma's log."""
_WRITES_MAX = 400
"""A thousand vectors of 512 numbers are about 500 writes."""
_STEP_S = 0.01


def flush_obstacle(scenario: Scenario) -> str | None:
    flushes = only("chroma", why="the moment 'flush' is one of Chroma's vector files")
    return flushes(scenario) or recording_obstacle(scenario)


def aim_at_flush(fault: Recorded, then: Literal["kill", "full"]) -> str:
    """Lets the clients go on until the engine is in the middle of rewriting its vectors; says where that was."""
    run, recorder = fault.run, fault.recorder
    begun = time.monotonic()
    files = await_flush(fault)
    file, writes = run.rng.choice(files), run.rng.randint(1, _WRITES_MAX)
    if then == "kill" and run.engine.embedded:
        for client in run.clients.present:
            client.doomed = True
    recorder.faults(Faults(aim=Aim(file, writes, then)))
    while recorder.aiming:
        _go_on_since(begun, run)
    return f"{FLUSH}: after {writes} writes into {file.name}"


def await_flush(fault: Recorded) -> list[Path]:
    """Lets the clients go on until vectors have been flushed; returns the files that hold them."""
    begun = time.monotonic()
    while not (files := _vector_files(fault.recorder.root)):
        _go_on_since(begun, fault.run)
    return files


def kill_in_flush(fault: Recorded) -> None:
    moment = aim_at_flush(fault, "kill")
    with fault.run.striking("kill-engine", moment):
        fault.down()
        fault.up()


def _vector_files(root: Path) -> list[Path]:
    flushed = root.rglob(_FLUSHED)
    return sorted(file for path in flushed if (file := path.with_name(_VECTORS)).exists())


def _go_on_since(begun: float, run: FaultedRun) -> None:
    waited_s = time.monotonic() - begun
    if waited_s > patient_s(FLUSH_TIMEOUT_S):
        run.give_up(f"no vectors were flushed within {waited_s:.0f} s")
    run.go_on(_STEP_S)
