"""What each policy loses when the power goes, and when only the engine is killed: known truths, found again by the
recorder on real engines."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from recollect.verify.disk import MODES, Faults, Image, Mode, Op, states
from recollect.verify.engines import StartFailed
from recollect.verify.wire.pgwire import PgError
from recollect.verify.wire.resp import RespError
from tests.disk.probes import Loss
from tests.disk.recorded_run import Enough, RecordedRun

NOTHING, LAST, TAIL, ALL = "nothing", "the last one", "a tail", "everything"
TAIL_OR_NOTHING = "a tail or nothing"


@dataclass(frozen=True)
class Truth:
    spec: str
    policy: str
    enough: Enough
    loses: str
    """To a power loss."""
    loses_to_kill: str = NOTHING

    @staticmethod
    def holds(loses: str, loss: Loss) -> bool:
        if loses == NOTHING:
            return loss.lost == ()
        if loses == LAST:
            return loss.lost == (loss.acked - 1,)
        if loses == ALL:
            return len(loss.lost) == loss.acked
        return (len(loss.lost) > 0 or loses == TAIL_OR_NOTHING) and loss.is_tail


TRUTHS = (
    Truth("redis", "none", Enough(rows=50), ALL, ALL),
    Truth("redis", "rdb", Enough(rows=50), ALL, ALL),
    Truth("redis", "aof-no", Enough(rows=200), ALL),
    Truth("redis", "aof-everysec", Enough(seconds=1.3), TAIL),
    Truth("redis", "aof-always", Enough(rows=200), NOTHING),
    Truth("redis@6.2", "aof-always", Enough(rows=100), NOTHING),
    Truth("valkey", "aof-always", Enough(rows=100), NOTHING),
    Truth("sqlite", "wal-full", Enough(rows=60), NOTHING),
    Truth("sqlite", "wal-normal", Enough(rows=60), ALL),
    Truth("sqlite", "delete-full", Enough(rows=30), LAST),
    Truth("sqlite", "delete-extra", Enough(rows=30), NOTHING),
    Truth("postgres@18", "default", Enough(rows=100), NOTHING),
    Truth("postgres@16", "default", Enough(rows=100), NOTHING),
    Truth("postgres@18", "async-commit", Enough(seconds=0.7), TAIL, TAIL_OR_NOTHING),
    Truth("postgres@18", "fsync-off", Enough(rows=100), ALL),
    Truth("chroma", "embedded", Enough(rows=12), NOTHING),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where images are made. Not pytest's own: PostgreSQL's user may not enter that."""
    with tempfile.TemporaryDirectory(prefix="recollect-images-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.mark.parametrize(
    "truth", TRUTHS, ids=lambda truth: f"{truth.spec} {truth.policy} loses {truth.loses}"
)
def test_power_loss(truth: Truth, folder: Path) -> None:
    with RecordedRun(truth.spec, truth.policy) as run:
        run.write(truth.enough)
        run.engine.kill()
        losses: dict[Image, Loss] = {}  # both modes often leave the same disk
        for mode in MODES:
            model, blindness = run.model(mode)
            assert blindness is None, str(blindness)
            if model.durable() not in losses:
                losses[model.durable()] = run.recovered(model.durable(), folder / mode)
            loss = losses[model.durable()]
            assert truth.holds(truth.loses, loss), f"{mode}: lost {len(loss.lost)} of {loss.acked}"
        loss = run.recovered(model.cached(), folder / "killed")
        assert truth.holds(truth.loses_to_kill, loss), f"killed: lost {len(loss.lost)} of {loss.acked}"


def test_a_slow_fsync_makes_everysec_lose_thousands_to_kill_9() -> None:
    """While a background fsync runs, Redis does not even write(2): acknowledged messages are in its memory
    only."""
    with RecordedRun("redis", "aof-everysec") as run:
        run.recorder.faults(Faults(sync_delay_s=30))
        begun = False
        while not begun:
            run.write(Enough(rows=run.acked + 100))
            begun = any(record.op is Op.SYNC for record in run.recorder.read())
        before = run.acked
        run.write(Enough(rows=before + 3000))
        run.engine.kill()
        assert run.engine.data is not None
        loss = run.read_back(run.engine.data)
        assert len(loss.lost) >= 2900
        assert loss.is_tail


@pytest.mark.parametrize("mode", MODES)
def test_postgres_dies_of_a_failed_fsync_rather_than_lie(mode: Mode, folder: Path) -> None:
    with RecordedRun("postgres@18", "default") as run:
        run.write(Enough(rows=20))
        run.recorder.faults(Faults.fsync_error())
        with pytest.raises((PgError, OSError)):
            run.write(Enough(rows=25))
        run.engine.kill()
        model, blindness = run.model(mode)
        assert blindness is None, str(blindness)
        assert run.recovered(model.durable(), folder / "image").lost == ()


def test_a_full_disk_is_an_error_and_not_a_loss() -> None:
    with RecordedRun("redis", "aof-always") as run:
        run.write(Enough(rows=20))
        run.recorder.faults(Faults(space_left_bytes=1000))
        with pytest.raises((RespError, OSError)):
            run.write(Enough(rows=200))
        run.engine.kill()
        assert run.engine.data is not None
        assert run.read_back(run.engine.data).lost == ()


def test_sqlite_says_disk_full_and_keeps_what_it_acknowledged() -> None:
    with RecordedRun("sqlite", "wal-full") as run:
        run.write(Enough(rows=10))
        run.recorder.faults(Faults(space_left_bytes=10_000))
        with pytest.raises(Exception, match="full"):
            run.write(Enough(rows=100))
        run.engine.kill()
        assert run.engine.data is not None
        assert run.read_back(run.engine.data).lost == ()


@pytest.mark.parametrize(
    ("spec", "policy"), [("redis", "aof-always"), ("sqlite", "delete-extra"), ("postgres@18", "default")]
)
def test_killed_at_a_chosen_call(spec: str, policy: str) -> None:
    """A kill between any two calls of the engine, not where a timer happens to hit."""
    with RecordedRun(spec, policy) as run:
        run.write(Enough(rows=5))
        run.recorder.faults(Faults(kill_at=run.recorder.count + 17))
        with pytest.raises((OSError, PgError)):
            run.write(Enough(rows=200))
        assert run.recorder.halted
        run.engine.kill()
        _, blindness = run.model()
        assert blindness is None, str(blindness)
        assert run.engine.data is not None
        assert run.read_back(run.engine.data).lost == ()


def test_redis_refuses_to_start_on_a_hole_in_its_log(folder: Path) -> None:
    """A page lost in the middle of the AOF: the engine's own failure, and a loud one."""
    with RecordedRun("redis", "aof-no") as run:
        run.write(Enough(rows=120))
        run.engine.kill()
        holes = [
            state
            for state in states(run.recorder.base, run.records(), "ext4", 2, start=len(run.records()))
            if state.kind == "one page lost" and "incr" in state.detail
        ]
        assert len(holes) > 1
        with pytest.raises(StartFailed):
            run.recovered(holes[1].image, folder / "hole")


def test_fsync_errors_of_redis_always_stop_it_acknowledging() -> None:
    with RecordedRun("redis", "aof-always") as run:
        run.write(Enough(rows=5))
        run.recorder.faults(Faults(sync_errno=errno.EIO))
        with pytest.raises((RespError, OSError)):
            run.write(Enough(rows=50))
