"""What the shim sees: every kind of call leaves a log from which the folder can be built again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.verify.disk import MODES, Content, Flag, Mode, Op, Recorder
from tests.disk.recorded_program import PRELUDE, recorded, replayed, run_program

CALLS = {
    "write and pwrite": """
fd = write_file("f", b"hello")
os.pwrite(fd, b"J", 0)
os.lseek(fd, 10, os.SEEK_SET)
os.write(fd, b"beyond")
""",
    "append": """
fd = os.open("f", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(fd, b"one"); os.write(fd, b"two")
os.close(fd)
fd = os.open("f", os.O_WRONLY | os.O_APPEND)
os.pwrite(fd, b"!", 0)
""",
    "vectors": """
fd = write_file("f", b"")
os.writev(fd, [b"ab", b"", b"cd"])
os.pwritev(fd, [b"X", b"Y"], 1)
os.pwritev(fd, [b"Z"], 7, os.RWF_DSYNC)
""",
    "truncate and allocate": """
fd = write_file("f", b"x" * 20000)
os.ftruncate(fd, 15000)
os.truncate("f", 14000)
ok(libc.fallocate(fd, 3, ctypes.c_long(4096), ctypes.c_long(4096)))
ok(libc.fallocate(fd, 0x10, ctypes.c_long(100), ctypes.c_long(50)))
ok(libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(100000)))
os.posix_fallocate(fd, 30000, 1000)
write_file("cut", b"long content")
write_file("cut", b"new")
""",
    "copies inside the kernel": """
write_file("from", bytes(range(256)) * 600)
source = os.open("from", os.O_RDONLY)
to = write_file("to", b"start")
assert os.copy_file_range(source, to, 100000, 10) == 100000
assert os.copy_file_range(source, to, 10, 0, 3) == 10
to2 = write_file("to2", b"")
assert os.sendfile(to2, source, 5, 70000) > 0
r, w = os.pipe(); os.write(w, b"through a pipe")
os.splice(r, to2, 14, offset_dst=3)
""",
    "names": """
os.mkdir("d"); os.mkdir("d/e")
write_file("d/e/f", b"1")
os.rename("d/e", "g")
os.link("g/f", "hard")
os.symlink("hard", "soft")
write_file("soft", b"through the link")
write_file("other", b"other")
ok(libc.renameat2(-100, b"other", -100, b"hard", 2))
os.unlink("hard"); os.rmdir("d")
dir_fd = os.open("g", os.O_RDONLY)
os.rename("f", "renamed", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
os.mkdir("sub", dir_fd=dir_fd); os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=dir_fd)
libc.remove(b"g/sub")
""",
    "a file moved in from elsewhere, and one moved out": """
outside = os.getcwd() + "-outside"
fd = write_file(outside, b"from elsewhere" * 1000); os.close(fd)
os.rename(outside, "inside")
again = os.open("inside", os.O_WRONLY); assert again == fd
os.write(again, b"the same descriptor and inode, another folder")
write_file("leaves", b"x")
os.rename("leaves", outside)
""",
    "temporary files": """
name = ctypes.create_string_buffer(b"tmp-XXXXXX")
fd = ok(libc.mkstemp(name)); os.write(fd, b"temporary")
name = ctypes.create_string_buffer(b"dir-XXXXXX")
libc.mkdtemp(name)
fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b"had no name")
ok(libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, b"has one", 0x400))
""",
    "streams": """
libc.fopen.restype = ctypes.c_void_p
libc.freopen.restype = ctypes.c_void_p
f = ctypes.c_void_p(libc.fopen(b"stream", b"w"))
libc.fputs(b"hello " * 3000, f)
libc.fflush(f)
libc.fseek(f, ctypes.c_long(3), 0)
libc.fputs(b"LATER", f)
libc.fclose(f)
f = ctypes.c_void_p(libc.fopen(b"stream", b"a+"))
libc.fputs(b"appended", f)
f = ctypes.c_void_p(libc.freopen(b"second", b"w", f))
libc.fputs(b"reopened", f)
libc.fclose(f)
f = ctypes.c_void_p(libc.fopen(b"left open", b"w"))
libc.fputs(b"flushed by exit", f)
""",
    "mappings": """
fd = write_file("mapped", bytes(20000), os.O_CREAT | os.O_RDWR)
m = mmap.mmap(fd, 20000)
m[5:8] = b"abc"; m[19990:19995] = b"tail!"
m.flush()
m[9000] = 7
os.fsync(fd)
m[100:103] = b"not"
""",
    "threads and children": """
import threading
def work(n):
    fd = write_file(f"t{n}", b"")
    for i in range(200): os.write(fd, bytes([n]) * 50)
    os.fsync(fd)
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
[t.start() for t in threads]
for n in range(10, 14):
    if os.fork() == 0:
        work(n); os._exit(0)
[t.join() for t in threads]
for _ in range(4): os.wait()
os.posix_spawn("/bin/sh", ["sh", "-c", "echo spawned > s; cp s s2; mv s2 s3; rm s"], os.environ)
os.wait()
""",
    "descriptors and inodes reused": """
outside = os.getcwd() + "-outside"
for i in range(50):
    fd = os.open(outside, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(fd, b"not ours"); os.close(fd); os.unlink(outside)
    fd = write_file(f"f{i % 7}", b"ours %d" % i)
    copy = os.dup(fd); os.close(fd)
    os.write(copy, b" too"); os.dup2(copy, 99); os.write(99, b"!")
    os.close(copy); os.close(99)
    if i % 3 == 0: os.unlink(f"f{i % 7}")
""",
}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_the_folder_can_be_built_again_from_the_log(tmp_path: Path, calls: str) -> None:
    (tmp_path / "data").mkdir()
    recorder, _ = recorded(tmp_path / "data", calls)
    with recorder:
        for mode in MODES:
            _, blindness = replayed(recorder, mode)
            assert blindness is None, str(blindness)
        assert recorder.count > 1


def test_a_path_through_a_symbolic_link_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    code = f"""
write_file({str(tmp_path / "alias" / "f")!r}, b"x")
os.chdir("/")
write_file({str(tmp_path / "real" / "g")!r}, b"y")
"""
    recorder, _ = recorded(tmp_path / "alias", code)
    with recorder:
        model, blindness = replayed(recorder)
        assert blindness is None
        assert model.cached().entries.keys() == {"f", "g"}


def test_other_folders_are_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data-too").mkdir()
    recorder, records = recorded(
        tmp_path / "data", "write_file('../data-too/f', b'x'); os.mkdir('../elsewhere')"
    )
    with recorder:
        assert records == []


def test_what_each_sync_is_recorded_as(tmp_path: Path) -> None:
    code = """
fd = write_file("f", b"x")
os.fsync(fd); os.fdatasync(fd); sync_folder(); libc.syncfs(fd)
libc.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(1), 7)
fd = os.open("g", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
os.write(fd, b"synced")
"""
    recorder, records = recorded(tmp_path, code)
    with recorder:
        syncs = [(record.op, record.flags) for record in records if record.op in (Op.SYNC, Op.SYNC_END)]
        flags = [0, Flag.DATA_ONLY, 0, Flag.EVERYTHING]
        assert syncs == [(op, flag) for flag in flags for op in (Op.SYNC, Op.SYNC_END)]
        assert [
            record.data for record in records if record.op is Op.WRITE and record.flags & Flag.SYNCED
        ] == [b"synced"]


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_is_durable_after_fflush_and_fsync(tmp_path: Path, mode: Mode) -> None:
    code = """
libc.fopen.restype = ctypes.c_void_p
f = ctypes.c_void_p(libc.fopen(b"stream", b"w"))
libc.fputs(b"durable", f); libc.fflush(f); libc.fsync(libc.fileno(f)); sync_folder()
libc.fputs(b" and lost", f); libc.fflush(f)
os.kill(os.getpid(), 9)
"""
    with Recorder(tmp_path) as recorder:
        run_program(recorder, code)
        model, blindness = replayed(recorder, mode)
        assert blindness is None
        assert model.durable().entries["stream"] == Content.of(b"durable")
        assert model.cached().entries["stream"] == Content.of(b"durable and lost")


@pytest.mark.parametrize("mode", MODES)
def test_msync_makes_its_range_durable(tmp_path: Path, mode: Mode) -> None:
    code = """
fd = write_file("m", bytes(16384), os.O_CREAT | os.O_RDWR)
os.fsync(fd); sync_folder()
m = mmap.mmap(fd, 16384); os.close(fd)
m[0:4] = b"kept"; m[8192:8196] = b"lost"
m.flush(0, 4096)
os.kill(os.getpid(), 9)
"""
    with Recorder(tmp_path) as recorder:
        run_program(recorder, code)
        model, blindness = replayed(recorder, mode)
        assert blindness is None
        assert model.durable().entries["m"] == Content.of(bytes(16384)).write(0, b"kept")
        assert model.cached().entries["m"] == Content.of(bytes(16384)).write(0, b"kept").write(8192, b"lost")


def test_marks_stand_between_the_calls(tmp_path: Path) -> None:
    code = """
fd = write_file("f", b"")
for line in sys.stdin:
    os.write(fd, line.strip().encode())
    print("done", flush=True)
"""
    with Recorder(tmp_path) as recorder:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PRELUDE + code],
            cwd=tmp_path,
            env={**os.environ, **recorder.env()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for number in range(3):
                process.stdin.write(f"{number}\n")
                process.stdin.flush()
                process.stdout.readline()
                recorder.mark(f"ack {number}")
        order = [
            record.path1 or record.data.decode()
            for record in recorder.read()
            if record.op in (Op.WRITE, Op.MARK)
        ]
        assert order == ["0", "ack 0", "1", "ack 1", "2", "ack 2"]


def test_a_long_random_program(tmp_path: Path) -> None:
    """Thousands of calls in an order that nobody thought of; the seed is in the failure's output."""
    seed = random.randrange(1 << 32)
    code = f"""
import random
rng = random.Random({seed})
names = ["a", "b", "d/a", "d/b"]
os.mkdir("d")
open_files = {{}}
for step in range(3000):
    name = rng.choice(names)
    kind = rng.randrange(9)
    try:
        if kind == 0:
            fd = os.open(name, os.O_CREAT | os.O_RDWR | rng.choice([0, os.O_TRUNC, os.O_APPEND]), 0o600)
            os.close(open_files.pop(name, os.dup(fd)))
            open_files[name] = fd
        elif kind == 1: os.rename(name, rng.choice(names))
        elif kind == 2: os.unlink(name)
        elif kind == 3: os.link(name, rng.choice(names))
        elif name in open_files:
            fd = open_files[name]
            if kind == 4: os.pwrite(fd, rng.randbytes(rng.randrange(1, 9000)), rng.randrange(20000))
            elif kind == 5: os.write(fd, rng.randbytes(rng.randrange(1, 5000)))
            elif kind == 6: os.ftruncate(fd, rng.randrange(20000))
            elif kind == 7: os.fsync(fd)
            else: os.close(open_files.pop(name))
    except FileNotFoundError: pass
    except FileExistsError: pass
"""
    (tmp_path / "data").mkdir()
    recorder, records = recorded(tmp_path / "data", code)
    with recorder:
        assert len(records) > 500
        for mode in MODES:
            _, blindness = replayed(recorder, mode)
            assert blindness is None, f"seed {seed}: {blindness}"
