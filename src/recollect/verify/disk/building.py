"""The shim's shared object: see `host.native` for where it comes from."""

from __future__ import annotations

import functools
from pathlib import Path

from recollect.verify.disk.records import LAYOUT
from recollect.verify.host.native import Native, NativeUnavailableError

SOURCES = Path(__file__).parent / "shim"
BUNDLED = Path(__file__).parent / "shim.so"

ShimUnavailableError = NativeUnavailableError


@functools.cache
def shim_path() -> Path:
    """A shim that loads into this process, compiled now if need be."""
    return Native("shim", "the disk recorder", SOURCES, BUNDLED, "recollect_layout", LAYOUT).path()
