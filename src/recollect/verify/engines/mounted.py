"""What an engine in a container is given of this machine: the libraries that are preloaded into it (the disk recorder,
the clock), and the files through which they talk to us. Each is mounted at the same place, so its name is the same.

The libraries ask for no particular version of a libc, and load into images with musl (`*-alpine`) as well as glibc,
whether that has `dlsym` in libdl.so.2 (before 2.34) or not. The recorder names files relative to the data folder, which
has another name inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LOG, ROOT, CLOCK = "RECOLLECT_DISK_LOG", "RECOLLECT_DISK_ROOT", "RECOLLECT_CLOCK"
PRELOAD = "LD_PRELOAD"


def shared_files(env: Mapping[str, str]) -> dict[str, str]:
    """Path → `ro`, or `rw` for the recorder's log, which the engine's processes write."""
    named = [(word, "ro") for word in env.get(PRELOAD, "").split()]
    named += [(env[CLOCK], "ro")] if CLOCK in env else []
    named += [(env[LOG], "rw")] if LOG in env else []
    return {path: mode for path, mode in named if Path(path).is_file()}


def inside(env: Mapping[str, str], folder: str | None) -> dict[str, str]:
    """The same environment, for a container whose data is in this folder."""
    return {**env, ROOT: folder} if ROOT in env and folder is not None else dict(env)
