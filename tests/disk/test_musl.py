"""The recorder inside a program on musl, as the servers of `*-alpine` images are; Debian's `musl` can run one."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from recollect.verify.disk.image import Content
from recollect.verify.disk.model import Model
from recollect.verify.disk.recorder import Recorder
from recollect.verify.disk.selfcheck import check_sight
from recollect.verify.disk.visibility import cannot_see

LIBC, LOADER = Path("/lib/x86_64-linux-musl/libc.so"), Path("/lib/ld-musl-x86_64.so.1")
PROGRAM = r"""
int open(const char *, int, ...);
long write(int, const void *, unsigned long);
int fsync(int);
int rename(const char *, const char *);
int __libc_start_main(int (*)(int, char **), int, char **, void *, void *, void *);

static int change(int count, char **arguments)
{
    int fd = open(arguments[1], 01 | 0100, 0644);
    write(fd, "synced,", 7);
    rename(arguments[1], arguments[2]);
    fsync(fd);
    write(fd, "not synced", 10);
    return 0;
}

void begin(long *stack) { __libc_start_main(change, (int)stack[0], (char **)(stack + 1), 0, 0, 0); }
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
"""  # without headers and startup files: Debian has them in another package


@pytest.fixture
def program(tmp_path: Path) -> Path:
    compiler = shutil.which("cc")
    if platform.machine() != "x86_64" or compiler is None or not (LIBC.exists() and LOADER.exists()):
        pytest.skip("needs x86-64, a C compiler and musl: apt-get install musl")
    source, made = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    argv = [compiler, "-nostdlib", "-fno-stack-protector", "-no-pie", "-w", "-o", str(made), str(source)]
    subprocess.run([*argv, str(LIBC), f"-Wl,--dynamic-linker={LOADER}"], check=True, capture_output=True)
    return made


def test_what_a_program_on_musl_does_is_recorded(program: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert cannot_see(program) is None
    with Recorder(data) as recorder:
        argv = [str(program), str(data / "draft"), str(data / "file")]
        done = subprocess.run(argv, env=recorder.env(), capture_output=True, text=True, check=True)
        assert done.stderr == "", "the loader took the recorder without a word"
        model = Model(recorder.base).replay(recorder.read())
        assert check_sight(recorder, model) is None
        assert model.cached().entries == {"file": Content.of(b"synced,not synced")}
        assert model.durable().entries == {"file": Content.of(b"synced,")}
