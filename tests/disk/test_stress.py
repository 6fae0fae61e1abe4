"""The recorder under threads, forks, vforks, spawned programs and signals: nothing hangs, and nothing goes unseen."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from recollect.verify.disk import Content, Faults, Op, Recorder
from recollect.verify.disk.prestart import Template
from recollect.verify.host import folder, native
from recollect.verify.host.waiting import wait_until
from tests.disk import stress
from tests.disk.recorded_program import recorded, replayed, run_program

CAPACITY_BYTES = 1 << 29


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = native.find_compiler()
    if compiler is None:
        pytest.skip("no C compiler to build the stress program with")
    return stress.build(compiler, tmp_path_factory.mktemp("stress") / "stress")


@pytest.mark.parametrize("mode", stress.MODES)
def test_nothing_hangs_and_nothing_goes_unseen(tmp_path: Path, program: Path, mode: str) -> None:
    children = {"fork": 200, "signal": 100}.get(mode, 30)
    with Recorder(tmp_path, capacity_bytes=CAPACITY_BYTES) as recorder:
        env = recorder.env()
        assert not stress.run(program, mode, children=children, threads=4, folder=tmp_path, env=env)
        _, blindness = replayed(recorder)
        assert blindness is None, str(blindness)


def test_copies_of_a_template_that_fork_and_spawn(tmp_path: Path, program: Path) -> None:
    """What a copy spawns has threads too, and the same library: it is no template, and nobody asks it for a copy."""
    template = Template(tmp_path / "control")
    env = {**os.environ, **template.env()}
    command = [str(program), "spawn", "3", "2"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
        try:
            assert template.connected(10.0)
            for _ in range(5):
                assert stress.copy_status(template) == 0
        finally:
            template.close()
            process.kill()


def test_a_kill_in_a_vforked_child_ends_it_and_its_parent(tmp_path: Path, program: Path) -> None:
    """The child borrows its parent's memory, and with it the parent's idea of who it is."""
    with Recorder(tmp_path) as recorder:
        # The first record is the parent's, of the file that its child closes.
        recorder.faults(Faults(kill_at=2))
        command = [str(program), "vfork", "1", "0"]
        env = {**os.environ, **recorder.env()}
        with subprocess.Popen(command, cwd=tmp_path, env=env, process_group=0) as process:
            try:
                assert process.wait(timeout=30) == -signal.SIGKILL
                wait_until(lambda: not folder.processes_in(tmp_path), 10.0, "the child is still there")
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert recorder.halted


SAME_AGAIN = {
    "a stream that is cut and written anew": """
for _ in range(2):
    f = ctypes.c_void_p(libc.fopen(b"f", b"w"))
    libc.fputs(b"same", f); libc.fflush(f); libc.fsync(libc.fileno(f)); libc.fclose(f)
""",
    "a stream whose file was removed": """
for attempt in range(2):
    f = ctypes.c_void_p(libc.fopen(b"f", b"w"))
    libc.fputs(b"same", f); libc.fflush(f); libc.fsync(libc.fileno(f)); libc.fclose(f)
    if not attempt: os.unlink("f")
""",
    "a mapping written over by a call": """
fd = write_file("f", b"same" + bytes(4092), os.O_CREAT | os.O_RDWR)
m = mmap.mmap(fd, 4096); m.flush()
os.pwrite(fd, b"else", 0)
m[0:4] = b"same"; m.flush()
""",
    "a mapping written over by another process": """
fd = write_file("f", b"same" + bytes(4092), os.O_CREAT | os.O_RDWR)
m = mmap.mmap(fd, 4096); m.flush()
if os.fork() == 0:
    m[0:4] = b"else"; m.flush()
    os._exit(0)
os.wait()
m[0:4] = b"same"; m.flush()
""",
    "a file that shrank and grew behind our back": """
import subprocess
fd = write_file("f", b"same" * 2048, os.O_CREAT | os.O_RDWR)
m = mmap.mmap(fd, 8192); os.fsync(fd)
unseen = {name: text for name, text in os.environ.items() if not name.startswith(("LD_", "RECOLLECT"))}
cut = "import os; os.truncate('f', %d)"
subprocess.run([sys.executable, "-I", "-S", "-c", cut % 10], env=unseen, check=True)
os.fsync(fd)
subprocess.run([sys.executable, "-I", "-S", "-c", cut % 8192], env=unseen, check=True)
m[0:8192] = b"same" * 2048
os.fsync(fd)
""",
}


@pytest.mark.parametrize("calls", SAME_AGAIN.values(), ids=SAME_AGAIN)
def test_what_is_synced_a_second_time_with_the_same_content_is_durable(tmp_path: Path, calls: str) -> None:
    """A page is left out of the log only while the log has it already."""
    head = "libc.fopen.restype = ctypes.c_void_p\n"
    recorder, _ = recorded(tmp_path, head + calls + "sync_folder()\n")
    with recorder:
        model, blindness = replayed(recorder)
        assert blindness is None, str(blindness)
        assert model.durable() == model.cached()


def test_two_threads_sync_one_mapping_and_both_are_recorded(tmp_path: Path) -> None:
    code = """
import threading
fd = write_file("f", bytes(8192), os.O_CREAT | os.O_RDWR)
m = mmap.mmap(fd, 8192)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)))
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def sync():
    for _ in range(2000): assert libc.msync(address, 8192, 4) == 0
threads = [threading.Thread(target=sync) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    recorder, records = recorded(tmp_path, code)
    with recorder:
        assert sum(record.op is Op.SYNC for record in records) == 4000


def test_one_sync_of_two_files_mapped_side_by_side(tmp_path: Path) -> None:
    """And of what is left of a mapping whose middle was given back."""
    code = """
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE, BOTH, SHARED, FIXED = 4096, 3, 1, 16
one = write_file("one", bytes(3 * PAGE), os.O_CREAT | os.O_RDWR)
two = write_file("two", bytes(PAGE), os.O_CREAT | os.O_RDWR)
at = libc.mmap(None, 4 * PAGE, BOTH, SHARED, one, 0)
libc.mmap(at + 3 * PAGE, PAGE, BOTH, SHARED | FIXED, two, 0)
ok(libc.munmap(at + PAGE, PAGE))
for page in (0, 2, 3): ctypes.memset(at + page * PAGE, 65 + page, 4)
for page in (0, 2): ok(libc.msync(at + page * PAGE, (1 if page == 0 else 2) * PAGE, 4))
sync_folder()
"""
    recorder, _ = recorded(tmp_path, code)
    with recorder:
        model, blindness = replayed(recorder)
        assert blindness is None, str(blindness)
        durable = model.durable().entries
        assert durable["one"] == Content.of(bytes(3 * 4096)).write(0, b"AAAA").write(2 * 4096, b"CCCC")
        assert durable["two"] == Content.of(bytes(4096)).write(0, b"DDDD")


def test_streams_that_are_gone_leave_room_for_the_next(tmp_path: Path) -> None:
    """Their inodes are given to other files, so that each stream has another one."""
    code = """
libc.fopen.restype = ctypes.c_void_p
def stream(name):
    f = ctypes.c_void_p(libc.fopen(name, b"w"))
    libc.fputs(b"content", f); libc.fflush(f); libc.fsync(libc.fileno(f)); libc.fclose(f)
for number in range(1200):
    stream(b"f")
    os.unlink("f")
    os.close(write_file(f"taken{number}", b"x"))
stream(b"last")
sync_folder()
"""
    with Recorder(tmp_path, capacity_bytes=1 << 26, skip_sync=True) as recorder:
        done = run_program(recorder, code)
        assert done.returncode == 0, done.stderr
        records = recorder.read()
        inodes = {record.ino for record in records if record.op is Op.CREATE and record.path1 == "f"}
        if len(inodes) <= 1024:
            pytest.skip("this filesystem gave the same inode again and again")
        model, blindness = replayed(recorder)
        assert blindness is None, str(blindness)
        assert model.durable().entries["last"] == Content.of(b"content")
