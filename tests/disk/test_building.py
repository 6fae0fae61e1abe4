"""Where the shim comes from, and what is said when it cannot be had."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.verify.disk import ShimUnavailableError, building, cannot_see, shim_path

PRINT_PATH = "from recollect.verify.disk import shim_path; print(shim_path())"


@pytest.fixture
def unbundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No shim in the package, an empty cache folder."""
    monkeypatch.setattr(building, "BUNDLED", tmp_path / "none.so")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shim_path.cache_clear()
    yield tmp_path / "cache" / "recollect"
    shim_path.cache_clear()


def test_compiled_at_first_use_and_kept(unbundled: Path) -> None:
    first = shim_path()
    assert first.parent == unbundled
    made = first.stat()
    shim_path.cache_clear()
    assert shim_path() == first
    assert first.stat().st_mtime_ns == made.st_mtime_ns
    assert [path.name for path in unbundled.iterdir()] == [first.name], "nothing else is left behind"


def test_it_loads_beside_any_libc(unbundled: Path) -> None:
    """It may be preloaded into a container. Before glibc 2.34, `dlsym` is in libdl.so.2; no version of a libc is asked
    for, and none by name."""
    elf = shim_path().read_bytes()
    assert (b"libdl.so.2\0" in elf, b"libc.so" in elf, b"GLIBC_" in elf) == (True, False, False)


def test_a_damaged_shim_is_compiled_again(unbundled: Path) -> None:
    # Compiled by another process: this one would go on with the shim that it has loaded.
    printed = subprocess.run([sys.executable, "-c", PRINT_PATH], capture_output=True, text=True, check=True)
    kept = Path(printed.stdout.strip())
    assert kept.parent == unbundled
    kept.write_bytes(b"\x7fELF and nothing more")
    assert shim_path() == kept
    assert kept.stat().st_size > 1000


def test_many_processes_compile_at_once(unbundled: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PRINT_PATH], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        for _ in range(3)
    ]
    printed = {process.communicate(timeout=60)[0].strip() for process in started}
    assert printed == {str(shim_path())}


def test_without_a_compiler_there_is_a_reason(unbundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(unbundled))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ShimUnavailableError, match=r"no C compiler.*apt-get install"):
        shim_path()


def test_a_compiler_that_fails_is_quoted(
    unbundled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'unknown argument' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(ShimUnavailableError, match="unknown argument"):
        shim_path()


def test_an_unwritable_cache_is_a_reason(unbundled: Path) -> None:
    unbundled.parent.mkdir(parents=True, exist_ok=True)
    unbundled.write_text("a file where the folder should be")
    with pytest.raises(ShimUnavailableError, match="compiling the disk recorder into"):
        shim_path()


def test_another_platform_is_a_reason(unbundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ShimUnavailableError, match="riscv64"):
        shim_path()


# ---- programs that the recorder cannot see into ----


def elf(interpreter: bytes | None, machine: int) -> bytes:
    """A 64-bit ELF file with one or two segments, as far as the check reads it."""
    header = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    )
    kind, text = (3, interpreter + b"\0") if interpreter else (1, b"")
    return header + struct.pack("<IIQQQQQQ", kind, 4, 120, 0, 0, len(text), len(text), 1) + text


MACHINE = {"x86_64": 62, "aarch64": 183}[platform.machine()]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (elf(None, MACHINE), "linked statically"),
        (elf(b"/lib/ld-musl-x86_64.so.1", MACHINE), None),
        (elf(b"/lib64/ld-linux-x86-64.so.2", 243), "another architecture"),
        (b"MZ not an ELF", "not a 64-bit ELF program"),
        (elf(b"/lib64/ld-linux-x86-64.so.2", MACHINE), None),
        (b"#!/bin/sh\nexec true\n", None),
    ],
)
def test_programs(tmp_path: Path, content: bytes, reason: str | None) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    said = cannot_see(program)
    assert said is None if reason is None else said is not None and reason in said


def test_set_user_id_programs(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(elf(b"/lib64/ld-linux-x86-64.so.2", MACHINE))
    program.chmod(0o4755)
    assert "set-user-id" in str(cannot_see(program))


def test_this_interpreter_can_be_seen_into() -> None:
    assert cannot_see(Path(sys.executable)) is None


def test_a_missing_program() -> None:
    assert "cannot be read" in str(cannot_see(Path("/nonexistent")))
