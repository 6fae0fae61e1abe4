"""The disk under the engine: power loss, syncs that are slow or fail, and no space left.

All four record what the engine does to its data folder (`recollect.verify.disk`). A power loss is a kill of
everything, after which the folder is replaced by what the durability model says the disk was obliged to hold. If the
recorder missed anything the run ends as `unknown`: a blind recorder would find no losses.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from recollect.guarantees import promise
from recollect.verify.disk.image import rewrite, scan
from recollect.verify.disk.model import MODES, Mode, Model
from recollect.verify.disk.recorder import Faults, Recorder
from recollect.verify.disk.records import Op
from recollect.verify.disk.selfcheck import check_sight
from recollect.verify.disk.states import zero_tails
from recollect.verify.engines import Pausable
from recollect.verify.running.faults.chroma_flush import (
    ALONE,
    FLUSH,
    aim_at_flush,
    await_flush,
    flush_obstacle,
)
from recollect.verify.running.faults.fault import Fault
from recollect.verify.running.faults.kill_moments import BESIDE_A_CHILD, moment_obstacle
from recollect.verify.running.faults.recorded_engine import down, record, recorder_of, recording_obstacle, up
from recollect.verify.running.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.running.run import Run

SYNC_DELAY_S = 1.5
SYNC_WAIT_S = 1.8
"""Redis begins a sync once a second, PostgreSQL and SQLite with every commit."""
_LOOK_S = 0.05
ZEROS = "zeros"
SPACE_LEFT_BYTES = 32 * 1024


def _model(run: Run) -> Model:
    recorder = recorder_of(run)
    mode: Mode = "strict" if run.scenario.variant == "strict" else "ext4"
    return Model(recorder.base, mode).replay(recorder.read())


def _cut_power(run: Run) -> None:
    """Everything is dead: the data folder becomes what the disk was obliged to hold."""
    recorder = recorder_of(run)
    model = _model(run)
    found = scan(recorder.root)
    blindness = check_sight(recorder, model, found=found)
    if blindness is not None:
        run.give_up(str(blindness))
    status = recorder.root.stat()
    left = zero_tails(model) if run.scenario.variant == ZEROS else model.durable()
    rewrite(recorder.root, found.image, left, owner=(status.st_uid, status.st_gid))


SYNCED_EVERY_SECOND = ("aof-everysec", "mixed")
SYNC_PERIOD_S = 1.1


BAD_MOMENTS_MAX = 10
BETWEEN_MOMENTS_S = 0.05
_REBUILT = "-shm"
"""SQLite's index of the WAL: never synced, made anew at every recovery."""


def _wait_for_a_bad_moment(run: Run) -> None:
    """An engine that syncs now and then (SQLite at a checkpoint) may just have done so: nothing would be at stake.

    A server must not do so while we look, either: it stands still until the power goes.
    """
    promised = promise(run.scenario.engine_name, run.scenario.policy, "power-loss")
    for _ in range(0 if promised.keeps_everything else BAD_MOMENTS_MAX):
        if isinstance(run.engine, Pausable):
            run.engine.pause()
        model = _model(run)
        if any(not name.endswith(_REBUILT) for name in model.durable().difference(model.cached())):
            return
        if isinstance(run.engine, Pausable):
            run.engine.resume()
        run.go_on(BETWEEN_MOMENTS_S)
        run.settle(quiet_s=0.0)


def _power_loss(run: Run) -> None:
    """Right after the last acknowledgement, when no later sync can have helped it; `busy` is in mid-write, `flush` is
    after Chroma's first flush of its vectors, `bgsave` and `bgrewriteaof` beside a child of Redis that saves."""
    variant = run.scenario.variant
    detail = variant or MODES[0]
    if run.scenario.policy in SYNCED_EVERY_SECOND:
        run.go_on(SYNC_PERIOD_S)  # or there was no sync at all, and the tail that is lost is everything
    if variant == FLUSH:
        await_flush(run)
    if variant in BESIDE_A_CHILD:
        detail = BESIDE_A_CHILD[variant](run)
    if variant != "busy":
        run.settle(quiet_s=0.0)
        _wait_for_a_bad_moment(run)
    with run.striking("power-loss", detail):
        down(run)
        _cut_power(run)
        up(run)


# The history has the fault at the moment that loses data. What was acknowledged while the disk misbehaved came before
# it, and is judged like everything else.


def _slow_fsync(run: Run) -> None:
    """Killed in the middle of a slow sync: until it has ended, Redis and PostgreSQL hold back what they acknowledge."""
    recorder = recorder_of(run)
    begun_before, _ = _syncs(recorder)
    recorder.faults(Faults(sync_delay_s=SYNC_DELAY_S))
    for _ in range(round(SYNC_WAIT_S / _LOOK_S)):
        run.go_on(_LOOK_S)
        begun, ended = _syncs(recorder)
        if begun > max(begun_before, ended):
            break
    run.go_on(SYNC_DELAY_S / 2)
    with run.striking("slow-fsync", f"each takes {SYNC_DELAY_S:g} s longer; a kill in the middle of one"):
        down(run)
        recorder_of(run).faults(Faults())
        up(run)


def _syncs(recorder: Recorder) -> tuple[int, int]:
    """How many have begun, and how many have ended."""
    counts = Counter(record.op for record in recorder.read())
    return counts[Op.SYNC], counts[Op.SYNC_END]


def _fsync_error(run: Run) -> None:
    recorder_of(run).faults(Faults.fsync_error())
    run.go_on(run.scenario.before_s)
    recorder_of(run).faults(Faults())
    run.go_on(run.scenario.before_s / 3)
    with run.striking("fsync-error", f"EIO for {run.scenario.before_s:g} s, then a power loss"):
        down(run)
        _cut_power(run)
        up(run)


def _disk_full(run: Run) -> None:
    if run.scenario.variant == FLUSH:
        moment = aim_at_flush(run, "full")
    else:
        moment = f"after {SPACE_LEFT_BYTES} bytes"
        recorder_of(run).faults(Faults(space_left_bytes=SPACE_LEFT_BYTES))
    run.go_on(run.scenario.before_s)
    recorder_of(run).faults(Faults())
    run.go_on(run.scenario.before_s / 3)
    with run.striking("disk-full", f"{moment}, for {run.scenario.before_s:g} s, then a kill"):
        down(run)
        up(run)


def _obstacle(scenario: Scenario) -> str | None:
    if scenario.variant in BESIDE_A_CHILD and (reason := moment_obstacle(scenario)) is not None:
        return reason
    return flush_obstacle(scenario) if scenario.variant == FLUSH else recording_obstacle(scenario)


DISK_FAULTS = (
    Fault(
        "power-loss",
        _power_loss,
        verifies="what was acknowledged survives the loss of everything that was not synced to the disk",
        does_not_verify="disks that lie about a cache flush; how likely the loss is (the kernel writes back by itself)",
        obstacle=_obstacle,
        record=record,
        variants=("", "strict", "busy", ZEROS, *BESIDE_A_CHILD, FLUSH),
        clients=ALONE,
    ),
    Fault(
        "slow-fsync",
        _slow_fsync,
        verifies="what was acknowledged while the disk is slow survives the sudden death of the engine",
        does_not_verify="power loss; how long a caller has to wait",
        obstacle=recording_obstacle,
        record=record,
    ),
    Fault(
        "fsync-error",
        _fsync_error,
        verifies="nothing is acknowledged that a failed fsync has lost, as the next power loss shows",
        does_not_verify="reads that fail, or data that a dying disk returns changed",
        obstacle=recording_obstacle,
        record=record,
    ),
    Fault(
        "disk-full",
        _disk_full,
        verifies="a full disk is an error to the caller, and what was acknowledged before and after is there",
        does_not_verify="quotas, inodes running out, a disk that stays full",
        obstacle=_obstacle,
        record=record,
        variants=("", FLUSH),
        clients=ALONE,
    ),
)
