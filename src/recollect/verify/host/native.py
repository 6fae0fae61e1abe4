"""Small libraries in C that are preloaded into other programs, and where their shared objects come from.

1. Built into the wheel, if the builder had a compiler (`hatch_build.py`).
2. Compiled at first use and kept in the user's cache folder, under a name made from its sources, so that an upgrade
   compiles again. Two processes that compile at once do no harm: each renames a whole file into place.
3. Otherwise there is none: `NativeUnavailableError` has the reason, and what needs the library is `skipped` with it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from recollect.verify.host import folder
from recollect.verify.host.cache import cache_folder

COMPILE_TIMEOUT_S = 60
_FLAGS = (
    *("-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"),
    # Not linked with this machine's libc, whose version it would then ask for: what it needs is in every process that
    # it is loaded into, and that may be one in a container, with another glibc or with musl.
    *("-nostdlib", "-fno-stack-protector"),
    *(("-mno-outline-atomics",) if platform.machine() == "aarch64" else ()),
)
_LIBDL = "libdl.so.2"
"""The one library that they name. Before glibc 2.34 `dlsym` is in it, and later ones still have an empty one; to musl
it is another name for itself. At compile time an empty one stands in for it, so that no version is asked for."""


class NativeUnavailableError(Exception):
    """The library is not available here; the message is the reason to show."""


@dataclass(frozen=True)
class Native:
    """One library: its sources, and how to recognise that a shared object was made from them."""

    name: str
    title: str
    """What messages call it: ``the disk recorder``."""
    sources: Path
    bundled: Path
    layout_symbol: str
    """A function that returns the layout of what the library shares with us …"""
    layout: int
    """… and the layout that our side was written for."""

    def path(self) -> Path:
        """A shared object that loads into this process, compiled now if need be."""
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
            raise NativeUnavailableError(
                f"{self.title} needs Linux on x86-64 or aarch64; this is {sys.platform} on {platform.machine()}"
            )
        if self.bundled.exists() and self._loads(self.bundled):
            return self.bundled
        cached = self.cached_path()
        if cached.exists() and self._loads(cached):
            return cached
        self.compile(cached)
        if not self._loads(cached):
            raise NativeUnavailableError(
                f"{self.title}'s {self.name} at {cached} was compiled and does not load"
            )
        return cached

    def cached_path(self) -> Path:
        """Where a library compiled from these sources on this machine is kept between runs."""
        return cache_folder() / f"{self.name}-{self._fingerprint()}.so"

    def compile(self, target: Path, compiler: str | None = None) -> None:
        """Compile the sources to `target`, or raise with the compiler's words."""
        found = compiler or find_compiler()
        if found is None:
            raise NativeUnavailableError(
                f"{self.title} is not built into this installation and there is no C compiler to build it "
                "(looked for $CC, cc, gcc, clang): install one, for example apt-get install gcc libc6-dev"
            )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as building:
                built, stub = Path(building) / f"{self.name}.so", Path(building) / _LIBDL
                sources = map(str, sorted(self.sources.glob("*.c")))
                self._call([found, *_FLAGS, f"-Wl,-soname,{_LIBDL}", "-o", str(stub), "-xc", os.devnull])
                self._call([found, *_FLAGS, "-o", str(built), *sources, "-Wl,--no-as-needed", str(stub)])
                built.chmod(0o755)
                built.replace(target)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NativeUnavailableError(
                f"compiling {self.title} into {target.parent} failed: {error}"
            ) from error

    def _call(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode:
            raise NativeUnavailableError(f"compiling {self.title} failed: {done.stderr.strip()[-500:]}")

    def _fingerprint(self) -> str:
        digest = blake2b(digest_size=8)
        for source in sorted(self.sources.glob("*.[ch]")):
            digest.update(source.read_bytes())
        digest.update(" ".join((*_FLAGS, _LIBDL, platform.machine(), platform.libc_ver()[1])).encode())
        return digest.hexdigest()

    def _loads(self, path: Path) -> bool:
        try:
            return int(getattr(ctypes.CDLL(str(path)), self.layout_symbol)()) == self.layout
        except (OSError, AttributeError):
            return False


def find_compiler() -> str | None:
    candidates = (os.environ.get("CC"), "cc", "gcc", "clang")
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


def for_every_user(library: Path) -> Path:
    """The library, or a copy in the run folder if it is in a home folder that an engine's other user cannot read."""
    readable = library.stat().st_mode & stat.S_IROTH
    if readable and all(above.stat().st_mode & stat.S_IXOTH for above in library.parents):
        return library
    copy = folder.current() / library.name
    if not copy.exists():
        draft = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}")
        shutil.copyfile(library, draft)
        draft.chmod(0o755)
        draft.replace(copy)
    return copy
