"""A prestarted server judges every crash state as a started one does: the same rows, the same refusal, the same files
left behind. And nothing of one state is there in the next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.verify import providers
from recollect.verify.disk import MODES, Content, Image, scan
from recollect.verify.disk.prestart.redis import PrestartedRedis, can_be_prestarted
from recollect.verify.disk.recovery import RedisRecovery, ServerRecovery, home
from recollect.verify.disk.states import states
from recollect.verify.engines import EngineError
from recollect.verify.host.waiting import wait_until
from tests.disk.probes import numbers_in
from tests.disk.recorded_run import Enough, RecordedRun

_STAMP = re.compile(r"^\s*\d+:\S+ \d+ \w+ \d+ [\d:.]+ ")
AOF = "appendonlydir/appendonly.aof"


@pytest.fixture
def place() -> Iterator[Path]:
    made = home()
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


class Judge:
    """One way to recover, and all that a state comes to by it."""

    def __init__(self, recovery: ServerRecovery) -> None:
        self.recovery = recovery

    def __call__(self, image: Image) -> tuple[object, dict[str, int | None]]:
        """What was read, or the refusal's first and last line; and the files that recovery left. Of a new snapshot only
        the name counts: the time is in it."""
        try:
            told: object = numbers_in(self.recovery.recover(image))
        except EngineError as refusal:
            lines = str(refusal).splitlines()
            told = (lines[0], _STAMP.sub("", lines[-1]))
        engine = self.recovery._engine
        engine.kill()
        left = scan(engine.data).image.entries
        return told, {
            path: None if path.endswith(".rdb") and entry != image.entries.get(path) else entry.digest
            for path, entry in left.items()
        }


def images_of(spec: str, policy: str) -> list[Image]:
    """Every kind of crash state, twice the same file in different states of damage, and what no power loss does."""
    with RecordedRun(spec, policy, skip_sync=True) as run:
        run.write(Enough(rows=4))
        run.engine.kill()
        kept = [state.image for mode in MODES for state in states(run.recorder.base, run.records(), mode, 3)]
    whole = kept[-1]
    manifest, base = whole.entries[f"{AOF}.manifest"], whole.entries[f"{AOF}.1.base.rdb"]
    assert isinstance(manifest, Content)
    assert isinstance(base, Content)
    damaged: list[dict[str, Content | None]] = [
        {f"{AOF}.manifest": None},
        {f"{AOF}.manifest": Content.of(b"nonsense\n")},
        {f"{AOF}.manifest": Content.of(manifest.read() + b"file missing.aof seq 2 type i\n")},
        {f"{AOF}.1.base.rdb": None},
        {f"{AOF}.1.base.rdb": base.resize(base.size - 9)},
        {f"{AOF}.1.base.rdb": base.write(9, b"\xff\xff")},
        {f"{AOF}.1.incr.aof": None},
        {f"{AOF}.1.incr.aof": Content.of(b"")},
    ]
    return [*kept, *(whole.replacing(change) for change in damaged), Image({}), whole]


@pytest.mark.parametrize("spec", ["redis", "valkey"])
def test_the_same_judgement_as_a_start(spec: str, place: Path) -> None:
    build = providers.find(spec)
    if not can_be_prestarted(build):
        pytest.skip(f"{build.product} {build.version} cannot be prestarted")
    (place / "started").mkdir(0o711)
    (place / "copied").mkdir(0o711)
    started = ServerRecovery(spec, "aof-everysec", place / "started", 1 << 30)
    copied = RedisRecovery(spec, "aof-everysec", place / "copied", 1 << 30)
    assert isinstance(copied._engine, PrestartedRedis)
    by_start, by_copy = Judge(started), Judge(copied)
    told = set()
    try:
        for image in images_of(spec, "aof-everysec"):
            expected = by_start(image)
            assert by_copy(image) == expected
            told.add(str(expected[0]))
    finally:
        started.close()
        copied.close()
    assert len(told) > 6, "states that come to different ends"


def test_an_older_redis_is_started_each_time(place: Path) -> None:
    """It opens its append-only file before it makes a thread: a copy would go on with the file of another state."""
    assert not can_be_prestarted(providers.find("redis@6.2"))
    recovery = RedisRecovery("redis@6.2", "aof-always", place, 1 << 30)
    try:
        assert not isinstance(recovery._engine, PrestartedRedis)
    finally:
        recovery.close()


@pytest.mark.parametrize("way", ["close", "kill"])
def test_nothing_is_left_running(way: str, place: Path) -> None:
    """Not when the recovery is closed, and not when its process is killed."""
    code = (
        "import os, sys; from pathlib import Path; from recollect.verify.disk import Image\n"
        "from recollect.verify.disk.recovery import RedisRecovery\n"
        "recovery = RedisRecovery('redis', 'aof-always', Path(sys.argv[1]), 1 << 30)\n"
        "recovery.recover(Image({}))\n"
        "engine = recovery._engine\n"
        "print(engine._template_process.pid, engine._copy.pid, flush=True)\n"
        "recovery.close() if sys.argv[2] == 'close' else os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", code, str(place), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    wait_until(lambda: not any(_runs(pid) for pid in pids), 20.0, f"{pids} are still there")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False
