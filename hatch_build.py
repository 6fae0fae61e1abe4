"""Builds the preloaded libraries (disk recorder, movable clock) into the wheel.

With ``RECOLLECT_WHEEL`` set to a platform tag of `TARGETS`, for that platform, by zig's compiler: a wheel to publish,
and failing to compile is a failure. Otherwise for this machine, where a C compiler is at hand; without one the wheel is
pure Python and they are compiled at first use (`recollect/verify/host/native.py`).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARIES = {
    "recollect/verify/disk/shim.so": "src/recollect/verify/disk/shim",
    "recollect/verify/disk/prestart/prestart.so": "src/recollect/verify/disk/prestart",
    "recollect/verify/clock/clock.so": "src/recollect/verify/clock",
}
TARGETS = {
    "manylinux_2_17_x86_64.manylinux2014_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64.manylinux2014_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
}
"""Platform tag, and what zig calls it."""
_FLAGS = ("-std=gnu11", "-O2", "-s", "-shared", "-fPIC", "-fvisibility=hidden")


class CannotCompile(Exception):
    """The message has the compiler's words."""


class ShimBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        platform_tag = os.environ.get("RECOLLECT_WHEEL")
        compiler = _compiler(platform_tag)
        if compiler is None:
            self.app.display_warning(
                "no C compiler: the disk recorder and the clock are compiled at first use"
            )
            return
        for place, sources in LIBRARIES.items():
            try:
                built = self._compile(compiler, Path(place).name, sources)
            except CannotCompile as error:
                if platform_tag:
                    raise
                self.app.display_warning(f"{Path(place).name} is compiled at first use: {error}")
                continue
            build_data["force_include"][str(built)] = place
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag or f'linux_{platform.machine()}'}"

    def _compile(self, compiler: list[str], name: str, folder: str) -> Path:
        target = Path(self.directory) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        sources = sorted((Path(self.root) / folder).glob("*.c"))
        command = [*compiler, *_FLAGS, "-o", str(target), *map(str, sources), "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotCompile(done.stderr.strip())
        return target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        for place in LIBRARIES:
            (Path(self.directory) / Path(place).name).unlink(missing_ok=True)


def _compiler(platform_tag: str | None) -> list[str] | None:
    if platform_tag is not None:
        if platform_tag not in TARGETS:
            raise CannotCompile(f"RECOLLECT_WHEEL={platform_tag}: known are {', '.join(TARGETS)}")
        return [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[platform_tag]]
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return None
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    return None if found is None else [found]
