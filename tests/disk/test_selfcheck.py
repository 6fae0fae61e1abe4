"""A recorder that missed something says so, and only then."""

from __future__ import annotations

from pathlib import Path

from recollect.verify.disk import Recorder
from tests.disk.recorded_program import recorded, replayed, run_program


def test_a_raw_system_call_is_noticed(tmp_path: Path) -> None:
    code = """
fd = write_file("f", b"seen")
number = {"x86_64": 1, "aarch64": 64}[os.uname().machine]
libc.syscall(number, fd, b"unseen", 6)
"""
    recorder, _ = recorded(tmp_path, code)
    with recorder:
        _, blindness = replayed(recorder)
        assert blindness is not None
        assert "f has 10 bytes, 4 were recorded" in str(blindness)


def test_a_process_without_the_shim_is_noticed(tmp_path: Path) -> None:
    code = """
import subprocess
subprocess.run(["/bin/sh", "-c", "echo hidden > g"], env={})
write_file("f", b"seen")
"""
    recorder, _ = recorded(tmp_path, "sys.path.append(os.path.dirname(os.__file__))" + code)
    with recorder:
        _, blindness = replayed(recorder)
        assert blindness is not None
        assert "g is there and was never recorded" in blindness.differences


def test_an_engine_that_never_loaded_the_shim_is_noticed(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        _, blindness = replayed(recorder)
        assert blindness is not None
        assert "no process" in str(blindness)


def test_io_uring_is_noticed(tmp_path: Path) -> None:
    code = "libc.io_uring_queue_init(8, ctypes.create_string_buffer(4096), 0)"
    recorder, _ = recorded(tmp_path, code)
    with recorder:
        _, blindness = replayed(recorder)
        assert blindness is not None
        assert "io_uring" in str(blindness)


def test_changes_of_a_mapping_after_its_last_sync_are_not_blindness(tmp_path: Path) -> None:
    code = """
fd = write_file("m", bytes(8192), os.O_CREAT | os.O_RDWR)
os.fsync(fd)
m = mmap.mmap(fd, 8192)
m[0:5] = b"later"
os.kill(os.getpid(), 9)
"""
    with Recorder(tmp_path) as recorder:
        run_program(recorder, code)
        model, blindness = replayed(recorder)
        assert blindness is None
        cached, durable = model.cached().entries["m"], model.durable().entries["m"]
        assert cached != durable, "the model took the change in, unsynced"


def test_kills_between_a_call_and_its_record_are_not_blindness(tmp_path: Path) -> None:
    """Many kills at random moments of a busy writer: none may look like blindness."""
    code = """
import threading
threading.Timer(MOMENT_S, os.kill, (os.getpid(), 9)).start()
def busy(n):
    fd = write_file(f"f{n}", b"")
    while True:
        os.pwrite(fd, os.urandom(100), os.urandom(1)[0] * 40)
for n in range(3): threading.Thread(target=busy, args=(n,), daemon=True).start()
while True:
    os.rename("f0", "g0"); os.rename("g0", "f0")
"""
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with Recorder(folder, capacity_bytes=1 << 28) as recorder:
            try:
                moment_s = 0.05 + attempt / 100
                run_program(recorder, code.replace("MOMENT_S", str(moment_s)))
            finally:
                _, blindness = replayed(recorder)
            assert blindness is None, str(blindness)
