"""The disk under the engine: power loss, syncs that are slow or fail, and no space left.

All four record what the engine does to its data folder (`recollect.verify.disk`). A power loss is a kill of
everything, after which the folder is replaced by what the durability model says the disk was obliged to hold. If the
recorder missed anything the run ends as `unknown`: a blind recorder would find no losses.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.guarantees import promise
from recollect.verify import providers
from recollect.verify.disk.building import ShimUnavailableError, shim_path
from recollect.verify.disk.image import rewrite, scan
from recollect.verify.disk.model import MODES, Mode, Model
from recollect.verify.disk.recorder import Faults, Recorder
from recollect.verify.disk.selfcheck import check_sight
from recollect.verify.disk.visibility import cannot_see
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.faults.fault import Fault, container_of, ours_only
from recollect.verify.host.errors import EngineError
from recollect.verify.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.runner import Run

SYNC_DELAY_S = 1.5
SLOW_S = 1.8
"""Redis begins a sync once a second and then holds its writes back: this long, and some are surely held back."""
SPACE_LEFT_BYTES = 32 * 1024
_IN_PYTHON = ("sqlite", "chroma")


def _obstacle(scenario: Scenario) -> str | None:
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


def _record(run: Run) -> None:
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
    if run.engine.embedded:
        run.record_clients(run.recorder.env())


def _recorder(run: Run) -> Recorder:
    assert run.recorder is not None, "the fault's `record` hook makes it"
    return run.recorder


def _stop_recording(run: Run) -> None:
    """What comes after the fault need not be recorded, and runs at full speed."""
    for name in _recorder(run).env():
        run.engine_env.pop(name, None)
    run.record_clients(None)


def _model(run: Run) -> Model:
    recorder = _recorder(run)
    mode: Mode = "strict" if run.scenario.variant == "strict" else "ext4"
    return Model(recorder.base, mode).replay(recorder.read())


def _cut_power(run: Run) -> None:
    """Everything is dead: the data folder becomes what the disk was obliged to hold."""
    recorder = _recorder(run)
    model = _model(run)
    found = scan(recorder.root)
    blindness = check_sight(recorder, model, found=found)
    if blindness is not None:
        run.give_up(str(blindness))
    status = recorder.root.stat()
    rewrite(recorder.root, found.image, model.durable(), owner=(status.st_uid, status.st_gid))


def _down(run: Run) -> None:
    """The engine, the clients that an embedded one lives in, and the kit's own process on its files."""
    run.kill_engine()
    run.engine.kill()


def _up(run: Run) -> None:
    _stop_recording(run)
    run.start_engine(run.restart)


SYNCED_EVERY_SECOND = ("aof-everysec", "mixed")
SYNC_PERIOD_S = 1.1


BAD_MOMENTS_MAX = 10
BETWEEN_MOMENTS_S = 0.05
_REBUILT = "-shm"
"""SQLite's index of the WAL: never synced, made anew at every recovery."""


def _wait_for_a_bad_moment(run: Run) -> None:
    """An engine that syncs now and then (SQLite at a checkpoint) may just have done so: nothing would be at stake."""
    promised = promise(run.scenario.engine_name, run.scenario.policy, "power-loss")
    for _ in range(0 if promised.keeps_everything else BAD_MOMENTS_MAX):
        model = _model(run)
        if any(not name.endswith(_REBUILT) for name in model.durable().difference(model.cached())):
            return
        run.go_on(BETWEEN_MOMENTS_S)
        run.settle(quiet_s=0.0)


def _power_loss(run: Run) -> None:
    """Right after the last acknowledgement, when no later sync can have helped it; `busy` is in mid-write."""
    if run.scenario.policy in SYNCED_EVERY_SECOND:
        run.go_on(SYNC_PERIOD_S)  # or there was no sync at all, and the tail that is lost is everything
    if run.scenario.variant != "busy":
        run.settle(quiet_s=0.0)
        _wait_for_a_bad_moment(run)
    with run.striking("power-loss", run.scenario.variant or MODES[0]):
        _down(run)
        _cut_power(run)
        _up(run)


# The history has the fault at the moment that loses data. What was acknowledged while the disk misbehaved came before
# it, and is judged like everything else.


def _slow_fsync(run: Run) -> None:
    _recorder(run).faults(Faults(sync_delay_s=SYNC_DELAY_S))
    run.go_on(SLOW_S)
    with run.striking("slow-fsync", f"each took {SYNC_DELAY_S:g} s longer for {SLOW_S:g} s, then a kill"):
        _down(run)
        _recorder(run).faults(Faults())
        _up(run)


def _fsync_error(run: Run) -> None:
    _recorder(run).faults(Faults.fsync_error())
    run.go_on(run.scenario.before_s)
    _recorder(run).faults(Faults())
    run.go_on(run.scenario.before_s / 3)
    with run.striking("fsync-error", f"EIO for {run.scenario.before_s:g} s, then a power loss"):
        _down(run)
        _cut_power(run)
        _up(run)


def _disk_full(run: Run) -> None:
    _recorder(run).faults(Faults(space_left_bytes=SPACE_LEFT_BYTES))
    run.go_on(run.scenario.before_s)
    _recorder(run).faults(Faults())
    run.go_on(run.scenario.before_s / 3)
    with run.striking(
        "disk-full", f"after {SPACE_LEFT_BYTES} bytes for {run.scenario.before_s:g} s, then a kill"
    ):
        _down(run)
        _up(run)


DISK_FAULTS = (
    Fault(
        "power-loss",
        _power_loss,
        verifies="what was acknowledged survives the loss of everything that was not synced to the disk",
        does_not_verify="disks that lie about a cache flush; how likely the loss is (the kernel writes back by itself)",
        obstacle=_obstacle,
        record=_record,
        variants=("", "strict", "busy"),
    ),
    Fault(
        "slow-fsync",
        _slow_fsync,
        verifies="what was acknowledged while the disk is slow survives the sudden death of the engine",
        does_not_verify="power loss; how long a caller has to wait",
        obstacle=_obstacle,
        record=_record,
    ),
    Fault(
        "fsync-error",
        _fsync_error,
        verifies="nothing is acknowledged that a failed fsync has lost, as the next power loss shows",
        does_not_verify="reads that fail, or data that a dying disk returns changed",
        obstacle=_obstacle,
        record=_record,
    ),
    Fault(
        "disk-full",
        _disk_full,
        verifies="a full disk is an error to the caller, and what was acknowledged before and after is there",
        does_not_verify="quotas, inodes running out, a disk that stays full",
        obstacle=_obstacle,
        record=_record,
    ),
)
