"""Where the shim's shared object comes from.

1. Built into the wheel beside this file, where the builder had a compiler (`hatch_build.py`).
2. Compiled at first use and kept in the user's cache folder, under a name made of its sources, so that an
   upgrade compiles anew and two processes that compile at once cannot harm each other (each renames a whole
   file into place).
3. Otherwise there is none: `ShimUnavailableError` has the reason, and disk faults are `skipped` with it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path

from recollect.verify.disk.records import LAYOUT

SOURCES = Path(__file__).parent / "shim"
BUNDLED = Path(__file__).parent / "shim.so"
COMPILE_TIMEOUT_S = 60
_FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_LIBRARIES = ("-ldl", "-lpthread")


class ShimUnavailableError(Exception):
    """The recorder cannot run here; the message is the reason to show."""


@functools.cache
def shim_path() -> Path:
    """A shim that loads into this process, compiled now if need be."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        raise ShimUnavailableError(
            "the disk recorder needs Linux on x86-64 or aarch64; "
            f"this is {sys.platform} on {platform.machine()}"
        )
    if BUNDLED.exists() and _loads(BUNDLED):
        return BUNDLED
    cached = cached_path()
    if cached.exists() and _loads(cached):
        return cached
    compile_shim(cached)
    if not _loads(cached):
        raise ShimUnavailableError(f"the disk recorder's shim at {cached} was compiled and does not load")
    return cached


def cached_path() -> Path:
    """Where a shim compiled from these sources on this machine is kept between runs."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "recollect" / f"shim-{_fingerprint()}.so"


def compile_shim(target: Path, compiler: str | None = None) -> None:
    """Compile the sources to `target`, or raise with the compiler's words."""
    found = compiler or find_compiler()
    if found is None:
        raise ShimUnavailableError(
            "the disk recorder is not built into this installation and there is no C compiler to build it "
            "(looked for $CC, cc, gcc, clang): install one, for example apt-get install gcc libc6-dev"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as folder:
            built = Path(folder) / "shim.so"
            command = [found, *_FLAGS, "-o", str(built), *map(str, sorted(SOURCES.glob("*.c"))), *_LIBRARIES]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
            )
            if done.returncode:
                raise ShimUnavailableError(
                    f"compiling the disk recorder failed: {done.stderr.strip()[-500:]}"
                )
            built.chmod(0o755)
            built.replace(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ShimUnavailableError(
            f"compiling the disk recorder into {target.parent} failed: {error}"
        ) from error


def find_compiler() -> str | None:
    candidates = (os.environ.get("CC"), "cc", "gcc", "clang")
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


def _fingerprint() -> str:
    digest = blake2b(digest_size=8)
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.read_bytes())
    digest.update(" ".join((*_FLAGS, platform.machine(), platform.libc_ver()[1])).encode())
    return digest.hexdigest()


def _loads(path: Path) -> bool:
    """It loads here, and its layout is the one that records.py was written for."""
    try:
        return int(ctypes.CDLL(str(path)).recollect_layout()) == LAYOUT
    except (OSError, AttributeError):
        return False
