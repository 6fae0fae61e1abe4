"""The disk under the engine: power loss, syncs that are slow or fail, and no space left.

All four record what the engine does to its data folder (`recollect.verify.disk`). A power loss is a kill of
everything, after which the folder is replaced by what the durability model says the disk was obliged to hold. If the
recorder missed anything the run ends as `unknown`: a blind recorder would find no losses.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from recollect.guarantees import promise
from recollect.verify.disk.image import rewrite, scan
from recollect.verify.disk.model import MODES, Mode, Model
from recollect.verify.disk.recorder import Faults
from recollect.verify.disk.records import Op, Record
from recollect.verify.disk.selfcheck import check_sight
from recollect.verify.disk.states import zero_tails
from recollect.verify.engines import Pausable
from recollect.verify.judging.detection import SEVERAL_CALLERS
from recollect.verify.running.faults.chroma_flush import (
    ALONE,
    FLUSH,
    aim_at_flush,
    await_flush,
    flush_obstacle,
)
from recollect.verify.running.faults.fault import Fault
from recollect.verify.running.faults.kill_moments import BESIDE_A_CHILD, moment_obstacle
from recollect.verify.running.faults.recorded_engine import Recorded, recording_obstacle
from recollect.verify.running.scenario import Scenario

SYNC_DELAY_S = 1.5
SYNC_WAIT_S = 1.8
"""Redis begins a sync once a second, PostgreSQL and SQLite with every commit."""
_LOOK_S = 0.05
ZEROS = "zeros"
SPACE_LEFT_BYTES = 32 * 1024


SYNCED_EVERY_SECOND = ("aof-everysec", "mixed")
SYNC_PERIOD_S = 1.1

BAD_MOMENTS_MAX = 10
BETWEEN_MOMENTS_S = 0.05
_REBUILT = "-shm"
"""SQLite's index of the WAL: never synced, recreated at every recovery."""


def longest_sync_s(records: Iterable[Record]) -> float:
    """A sync that had not ended is as long as the recording shows it; zero without any."""
    begun: dict[tuple[int, int], int] = {}
    longest_ns = latest_ns = 0
    for record in records:
        latest_ns = max(latest_ns, record.time_ns)
        thread = record.pid, record.tid
        if record.op is Op.SYNC:
            begun[thread] = record.time_ns
        elif record.op is Op.SYNC_END and thread in begun:
            longest_ns = max(longest_ns, record.time_ns - begun.pop(thread))
    return max([longest_ns, *(latest_ns - since for since in begun.values())]) / 1e9


class _DiskFault(Recorded):
    def model(self) -> Model:
        """What the disk has to hold, as far as the recording says."""
        mode: Mode = "strict" if self.run.scenario.variant == "strict" else "ext4"
        return Model(self.recorder.base, mode).replay(self.recorder.read())

    def cut_power(self) -> None:
        """Everything is dead: the data folder becomes what the disk was obliged to hold."""
        root = self.recorder.root
        self.run.syncs_took(longest_sync_s(self.recorder.read()))
        model = self.model()
        found = scan(root)
        blindness = check_sight(self.recorder, model, found=found)
        if blindness is not None:
            self.run.give_up(str(blindness))
        status = root.stat()
        left = zero_tails(model) if self.run.scenario.variant == ZEROS else model.durable()
        rewrite(root, found.image, left, owner=(status.st_uid, status.st_gid))


class PowerLoss(_DiskFault):
    """Right after the last acknowledgement, before a later sync can help it; `busy` is in mid-write, `flush` is after
    Chroma's first flush of its vectors, `bgsave` and `bgrewriteaof` are while a child of Redis saves."""

    _paused_at: float | None = None

    def strike(self) -> None:
        run, variant = self.run, self.run.scenario.variant
        detail = variant or MODES[0]
        if run.scenario.policy in SYNCED_EVERY_SECOND:
            run.go_on(SYNC_PERIOD_S)  # otherwise nothing is synced yet, and the lost tail would be everything
        if variant == FLUSH:
            await_flush(self)
        if variant in BESIDE_A_CHILD:
            detail = BESIDE_A_CHILD[variant](run)
        if variant != "busy":
            run.settle(quiet_s=0.0)
            self._wait_for_a_bad_moment()
        with run.striking("power-loss", detail):
            self.down(self._paused_at)
            self.cut_power()
            self.up()

    def _wait_for_a_bad_moment(self) -> None:
        """An engine that syncs now and then (SQLite at a checkpoint) may just have done so: nothing would be at risk.

        Nor may a server sync while we look, so it is paused until the power goes.
        """
        run, engine = self.run, self.run.engine
        promised = promise(run.scenario.engine_name, run.scenario.policy, "power-loss")
        for _ in range(0 if promised.keeps_everything else BAD_MOMENTS_MAX):
            if isinstance(engine, Pausable):
                self._paused_at = time.monotonic()
                engine.pause()
            model = self.model()
            if any(not name.endswith(_REBUILT) for name in model.durable().difference(model.cached())):
                return
            if isinstance(engine, Pausable):
                engine.resume()
                self._paused_at = None
            run.go_on(BETWEEN_MOMENTS_S)
            run.settle(quiet_s=0.0)


# In the history the fault begins when the disk starts to misbehave: what fails from then on has an excuse. What is
# acknowledged meanwhile has none, and the engine's death at the end shows what those acknowledgements were worth.


class SlowFsync(_DiskFault):
    """Killed in the middle of a slow sync: Redis and PostgreSQL hold their acknowledgements back until it has ended."""

    def strike(self) -> None:
        run = self.run
        begun_before, _ = self._syncs()
        with run.striking("slow-fsync", f"each takes {SYNC_DELAY_S:g} s longer; a kill in the middle of one"):
            self.recorder.faults(Faults(sync_delay_s=SYNC_DELAY_S))
            for _ in range(round(SYNC_WAIT_S / _LOOK_S)):
                run.go_on(_LOOK_S)
                begun, ended = self._syncs()
                if begun > max(begun_before, ended):
                    break
            run.go_on(SYNC_DELAY_S / 2)
            self.down()
            self.recorder.faults(Faults())
            self.up()

    def _syncs(self) -> tuple[int, int]:
        """How many have begun, and how many have ended."""
        counts = Counter(record.op for record in self.recorder.read())
        return counts[Op.SYNC], counts[Op.SYNC_END]


class FsyncError(_DiskFault):
    def strike(self) -> None:
        run, failing_s = self.run, self.run.scenario.before_s
        with run.striking("fsync-error", f"EIO for {failing_s:g} s, then a power loss"):
            self.recorder.faults(Faults.fsync_error())
            run.go_on(failing_s)
            self.recorder.faults(Faults())
            run.go_on(failing_s / 3)
            self.down()
            self.cut_power()
            self.up()


class DiskFull(_DiskFault):
    def strike(self) -> None:
        run, full_s = self.run, self.run.scenario.before_s
        at_flush = run.scenario.variant == FLUSH
        moment = aim_at_flush(self, "full") if at_flush else f"after {SPACE_LEFT_BYTES} bytes"
        with run.striking("disk-full", f"{moment}, for {full_s:g} s, then a kill"):
            if not at_flush:
                self.recorder.faults(Faults(space_left_bytes=SPACE_LEFT_BYTES))
            self.go_on_until(lambda: self.recorder.space_left_bytes == 0, full_s)
            self.recorder.faults(Faults())
            run.go_on(full_s / 3)
            self.down()
            self.up()


def _obstacle(scenario: Scenario) -> str | None:
    if scenario.variant in BESIDE_A_CHILD and (reason := moment_obstacle(scenario)) is not None:
        return reason
    return flush_obstacle(scenario) if scenario.variant == FLUSH else recording_obstacle(scenario)


DISK_FAULTS = (
    Fault(
        "power-loss",
        PowerLoss,
        verifies="what was acknowledged survives the loss of everything that was not synced to the disk",
        does_not_verify="disks that lie about a cache flush; how likely the loss is"
        " (the kernel writes back on its own)",
        obstacle=_obstacle,
        variants=("", "strict", "busy", ZEROS, *BESIDE_A_CHILD, FLUSH),
        clients=ALONE,
    ),
    Fault(
        "slow-fsync",
        SlowFsync,
        verifies="what was acknowledged while the disk was slow survives the sudden death of the engine",
        does_not_verify="power loss; how long a caller has to wait",
        obstacle=recording_obstacle,
    ),
    Fault(
        "fsync-error",
        FsyncError,
        verifies="nothing is acknowledged that a failed fsync has lost, as the next power loss shows",
        does_not_verify="reads that fail, or data that a dying disk returns changed",
        obstacle=recording_obstacle,
    ),
    Fault(
        "disk-full",
        DiskFull,
        verifies="a full disk is an error to the caller, and what was acknowledged before and afterwards is there",
        does_not_verify="quotas, inodes running out, a disk that stays full",
        obstacle=_obstacle,
        variants=("", FLUSH, SEVERAL_CALLERS),
        usual_on={SEVERAL_CALLERS: ("sqlite",)},
        clients=ALONE,
        callers={SEVERAL_CALLERS: 3},
    ),
)
