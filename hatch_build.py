"""Builds the preloaded libraries (disk recorder, movable clock) into the wheel, where a C compiler is at hand.

Without one, or when compiling fails, the wheel is pure Python and they are compiled at first use
(`recollect/verify/host/native.py`): the build itself never fails for it.
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

_LIBRARIES = {
    "recollect/verify/disk/shim.so": "src/recollect/verify/disk/shim",
    "recollect/verify/disk/prestart/prestart.so": "src/recollect/verify/disk/prestart",
    "recollect/verify/clock/clock.so": "src/recollect/verify/clock",
}
_FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")


class ShimBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        for place, sources in _LIBRARIES.items():
            built = self._compile(Path(place).name, sources)
            if built is not None:
                build_data["force_include"][str(built)] = place
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-linux_{platform.machine()}"

    def _compile(self, name: str, folder: str) -> Path | None:
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
            return None
        names = (os.environ.get("CC"), "cc", "gcc", "clang")
        compiler = next((path for name in names if name and (path := shutil.which(name))), None)
        if compiler is None:
            self.app.display_warning(f"no C compiler: {name} is compiled at first use")
            return None
        target = Path(self.directory) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        sources = sorted((Path(self.root) / folder).glob("*.c"))
        command = [compiler, *_FLAGS, "-o", str(target), *map(str, sources), "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"{name} is compiled at first use: {done.stderr.strip()}")
            return None
        return target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        for place in _LIBRARIES:
            (Path(self.directory) / Path(place).name).unlink(missing_ok=True)
