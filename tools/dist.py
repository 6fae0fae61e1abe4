"""`make dist`: the wheels and the source distribution that a release consists of, built and tried out.

Each wheel must carry the three libraries, compiled for its platform and for no newer C library than its tag says. The
one for this machine is installed with pip into an empty environment of every supported Python that is found here, on a
PATH without a compiler, and has to record a power loss there. The musl libraries are preloaded into a program that runs
on musl's own loader, where there is one.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(PROJECT))

from hatch_build import LIBRARIES, TARGETS  # noqa: E402

DIST = PROJECT / "dist"
MACHINES = {"x86_64": 62, "aarch64": 183}
"""`e_machine` in an ELF header."""
GLIBC_MAX = (2, 17)
PYTHONS = os.environ.get("PYTHONS", "python3.12 python3.13").split()
"""Beside the one that runs this."""
MUSL_LOADER = Path(f"/lib/ld-musl-{platform.machine()}.so.1")
MUSL_PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    int fd = open(argv[1], O_CREAT | O_WRONLY, 0600);
    return fd < 0 || write(fd, "remembered", 10) != 10 || fsync(fd) != 0 || close(fd) != 0;
}
"""


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(DIST), str(PROJECT))
    source = next(DIST.glob("*.tar.gz"))
    for tag in TARGETS:
        # From the source distribution: what is not in it is missing for everybody who builds.
        with tempfile.TemporaryDirectory() as unpacked:
            shutil.unpack_archive(source, unpacked, filter="data")
            root = next(Path(unpacked).iterdir())
            _run(*_BUILD_WHEEL, "--outdir", str(DIST), str(root), RECOLLECT_WHEEL=tag)
    wheels = sorted(DIST.glob("*.whl"))
    assert len(wheels) == len(TARGETS), wheels
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, [source, *wheels]))
    for wheel in wheels:
        _check_libraries(wheel)
    ours = next(each for each in wheels if "manylinux" in each.name and platform.machine() in each.name)
    absent = [name for name in PYTHONS if not runs(name)]
    for python in [sys.executable, *(name for name in PYTHONS if name not in absent)]:
        _check_installed(ours, python)
    if absent:
        print(f"not tried: {', '.join(absent)}, which are not on PATH (make dist PYTHONS='…')")
    musl = next(each for each in wheels if "musllinux" in each.name and platform.machine() in each.name)
    tried = _check_on_musl(musl)
    print(f"{len(wheels)} wheels and the source in dist/; {tried}")
    return 0


_BUILD_WHEEL = (sys.executable, "-m", "build", "--wheel", "--no-isolation")


def _run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _check_libraries(wheel: Path) -> None:
    machine = next(name for name in MACHINES if name in wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        for place in LIBRARIES:
            elf = archive.read(place)
            if int.from_bytes(elf[18:20], "little") != MACHINES[machine]:
                sys.exit(f"{wheel.name}: {place} is not for {machine}")
            needed = [(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", elf)]
            if "musllinux" in wheel.name and needed:
                sys.exit(f"{wheel.name}: {place} needs glibc")
            if max(needed, default=(0, 0)) > GLIBC_MAX:
                sys.exit(f"{wheel.name}: {place} needs glibc {max(needed)}, the tag says {GLIBC_MAX}")
    print(f"{wheel.name}: three libraries for {machine}")


def runs(python: str) -> bool:
    """Whether it is one: pyenv has a `python3.12` on PATH that only says which versions it could have been."""
    found = shutil.which(python)
    return found is not None and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0


def _check_installed(wheel: Path, python: str) -> None:
    """As a user has it: pip, an empty environment, no compiler on PATH, and no cache of ours."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        _run(python, "-m", "venv", str(environment))
        _run(str(environment / "bin" / "pip"), "install", "--quiet", f"{wheel}[verify]")
        said = _run(
            str(environment / "bin" / "recollect"),
            *("verify", "sqlite", "--fault", "power-loss", "--out", f"{folder}/runs", "--no-confirm"),
            PATH=str(environment / "bin"),
            XDG_CACHE_HOME=f"{folder}/cache",
            PYTHONPATH="",
        )
        if (Path(folder) / "cache" / "recollect").exists() or "power-loss" not in said:
            sys.exit(f"{wheel.name} compiled its own recorder, or did not use one:\n{said}")
        version = _run(str(environment / "bin" / "python"), "--version").strip()
    print(f"{wheel.name}: installed with pip, power loss recorded with the libraries inside, on {version}")


def _check_on_musl(wheel: Path) -> str:
    if not MUSL_LOADER.exists():
        return f"the musl libraries were not tried: no {MUSL_LOADER} (Debian: apt-get install musl)"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        (folder / "program.c").write_text(MUSL_PROGRAM)
        target = TARGETS[next(tag for tag in TARGETS if "musl" in tag and platform.machine() in tag)]
        compiler = (sys.executable, "-m", "ziglang", "cc", "-target", target, "-dynamic", "-O2")
        _run(*compiler, "-o", str(folder / "program"), str(folder / "program.c"))
        recorded = _recorded_on_musl(folder)
    if not {"CREATE", "WRITE", "SYNC"} <= recorded:
        sys.exit(f"{wheel.name}: on musl the recorder saw only {sorted(recorded)}")
    return "the musl libraries recorded a program on musl's loader"


def _recorded_on_musl(folder: Path) -> set[str]:
    """Runs the program under the wheel's recorder, driven by the project's own environment, and names what was seen."""
    script = PROJECT / "tools" / "musl_recording.py"
    python = PROJECT / ".venv" / "bin" / "python"
    shim = folder / "recollect" / "verify" / "disk" / "shim.so"
    return set(_run(str(python), str(script), str(shim), str(folder / "program")).split())


if __name__ == "__main__":
    sys.exit(main())
