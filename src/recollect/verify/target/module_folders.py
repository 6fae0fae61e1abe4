"""Where a target's module is found: in folders that only the test suite naming it may know about."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path


def import_from(folders: Iterable[str]) -> None:
    """Puts folders first on the path of this process and of all that it starts; relative ones start at its folder.

    Sets the environment too: on Python 3.11 a fork server does not take over `sys.path`, only its children do.
    """
    wanted = [str(Path(folder).absolute()) for folder in folders]
    sys.path[:] = [*wanted, *(folder for folder in sys.path if folder not in wanted)]
    former = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    together = [*wanted, *(folder for folder in former if folder and folder not in wanted)]
    if together:
        os.environ["PYTHONPATH"] = os.pathsep.join(together)


def home_of(file: Path) -> tuple[str, str]:
    """The folder to import a module's file from, and the dotted name it then has."""
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return str(folder), ".".join(parts)


def own_folders() -> list[str]:
    """What this process has on its path beyond Python's own folders."""
    pythons = {
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    pythons |= {folder / "lib-dynload" for folder in pythons}
    folders = (Path(entry or ".").resolve() for entry in sys.path)
    return list(dict.fromkeys(str(folder) for folder in folders if folder.is_dir() and folder not in pythons))


def from_here(folder: str) -> str:
    """Relative if possible: a run may be replayed in another copy of the project."""
    relative = os.path.relpath(folder)
    return folder if relative.startswith("..") else relative
