"""Injected faults: the calls of an unmodified program fail, stall, or end the program, and the log says
so."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import psutil
import pytest

from recollect.verify.disk import MODES, Content, Faults, LogFullError, Mode, Op, Recorder
from tests.disk.recorded_program import replayed, run_program

WRITER = """
fd = write_file("f", b"")
for i in range(100): os.write(fd, b"%03d" % i)
"""


def test_killed_at_a_record(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.faults(Faults(kill_at=11))
        done = run_program(recorder, WRITER)
        assert done.returncode == -signal.SIGKILL
        assert recorder.halted
        assert recorder.count == 11
        assert (tmp_path / "f").read_bytes() == b"".join(b"%03d" % i for i in range(10))
        assert replayed(recorder)[1] is None


@pytest.mark.parametrize(("percent", "kept"), [(0, 0), (34, 1), (67, 2), (100, 3)])
def test_the_last_write_is_torn(tmp_path: Path, percent: int, kept: int) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.faults(Faults(kill_at=6, torn_percent=percent))
        assert run_program(recorder, WRITER).returncode == -signal.SIGKILL
        assert (tmp_path / "f").read_bytes() == b"000001002003" + b"004"[:kept]
        assert replayed(recorder)[1] is None


def test_the_whole_tree_is_killed_wherever_it_is(tmp_path: Path) -> None:
    """Children in sessions of their own, idle or busy: a kill by process group would miss them."""
    code = """
import time
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        fd = write_file(f"child{n}", b"")
        while not os.path.exists("parent"): pass
        while n: os.write(fd, b"busy")
        time.sleep(600)
    while not os.path.exists(f"child{n}"): pass
fd = write_file("parent", b"")
while True: os.write(fd, b"x")
"""
    with Recorder(tmp_path) as recorder:
        recorder.faults(Faults(kill_at=500))
        done = run_program(recorder, code)
        assert done.returncode == -signal.SIGKILL
        family = [process for pid in recorder.pids() if (process := _alive(pid)) is not None]
        _, survivors = psutil.wait_procs(family, timeout=5)
        assert survivors == []
        assert len(recorder.pids()) == 4
        assert replayed(recorder)[1] is None


def _alive(pid: int) -> psutil.Process | None:
    """Orphans are reaped by somebody else, in their own time: a zombie is dead."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None


def test_slow_syncs_are_slow_and_count_only_when_they_return(tmp_path: Path) -> None:
    code = """
import threading
fd = write_file("f", b"data")
threading.Timer(0.2, os.kill, (os.getpid(), 9)).start()
os.fsync(fd)
print("returned")
"""
    with Recorder(tmp_path) as recorder:
        recorder.faults(Faults(sync_delay_s=30))
        done = run_program(recorder, code)
        assert done.returncode == -signal.SIGKILL
        assert done.stdout == ""
        model, _ = replayed(recorder)
        assert "f" not in model.durable().entries
        assert model.syncs_in_flight


@pytest.mark.parametrize("mode", MODES)
def test_a_failing_fsync_writes_nothing_and_a_second_one_does_not_help(tmp_path: Path, mode: Mode) -> None:
    code = """
fd = write_file("f", b"x" * 4096); os.fsync(fd); sync_folder()
os.pwrite(fd, b"y" * 4096, 0)
try: os.fsync(fd); sys.exit("did not fail")
except OSError as error: print(error.errno)
"""
    with Recorder(tmp_path) as recorder:
        recorder.faults(Faults.fsync_error(after=2))
        done = run_program(recorder, code)
        assert done.stdout.strip() == str(errno.EIO), done.stderr
        recorder.faults(Faults())
        done = run_program(recorder, "fd = os.open('f', os.O_RDWR); os.fsync(fd)")
        assert done.returncode == 0
        model, blindness = replayed(recorder, mode)
        assert blindness is None
        assert model.durable().entries["f"] == Content.of(b"x" * 4096)
        assert model.cached().entries["f"] == Content.of(b"y" * 4096)
        ends = [record.offset for record in recorder.read() if record.op is Op.SYNC_END]
        assert ends == [0, 0, errno.EIO, 0]


def test_a_full_disk_takes_what_fits_and_then_nothing(tmp_path: Path) -> None:
    code = """
fd = write_file("f", b"")
written = [os.write(fd, b"x" * 1000) for _ in range(2)]
written.append(os.write(fd, b"x" * 1000))
grow = lambda: os.posix_fallocate(fd, 0, 5000)
for call in (lambda: os.write(fd, b"x"), lambda: write_file("g", b""), lambda: os.mkdir("d"), grow):
    try: call(); print("no error")
    except OSError as error: written.append(error.errno)
os.pwrite(fd, b"overwriting needs no space", 0)
print(written)
"""
    with Recorder(tmp_path) as recorder:
        recorder.faults(Faults(space_left_bytes=2500))
        done = run_program(recorder, code)
        assert done.stdout.strip() == str([1000, 1000, 500, *[errno.ENOSPC] * 4]), done.stdout + done.stderr
        assert recorder.space_left_bytes == 0
        assert replayed(recorder)[1] is None
        recorder.faults(Faults())
        assert run_program(recorder, "write_file('g', b'healed')").returncode == 0


def test_a_full_disk_for_streams(tmp_path: Path) -> None:
    code = """
libc.fopen.restype = ctypes.c_void_p
f = ctypes.c_void_p(libc.fopen(b"stream", b"w"))
print(libc.fwrite(b"x" * 500, 1, 500, f), libc.fwrite(b"x" * 600, 1, 600, f), ctypes.get_errno())
"""
    with Recorder(tmp_path) as recorder:
        recorder.faults(Faults(space_left_bytes=1000))
        assert run_program(recorder, code).stdout.split() == ["500", "0", str(errno.ENOSPC)]


def test_the_log_says_when_it_is_full(tmp_path: Path) -> None:
    with Recorder(tmp_path, capacity_bytes=1 << 17) as recorder:
        done = run_program(
            recorder, "fd = write_file('f', b'')\nfor i in range(100): os.write(fd, bytes(4096))"
        )
        assert done.returncode == 0, "a full log must not harm the engine"
        with pytest.raises(LogFullError, match="131072 bytes"):
            list(recorder.read())
