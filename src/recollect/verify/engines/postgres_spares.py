"""Data folders that are used again: the next cluster from the same template is made from the last one's folder.

A cluster is a thousand files. ext4 does not reuse an inode that was freed in the last minutes, but it looks at each
one; so after a few clusters were deleted, making the next one takes ten times as long as copying its bytes. Turning an
old folder back into its template frees and takes hardly any inodes: files that differ are copied, surplus ones deleted.
Size and modification time show what differs: `cp -a` keeps the template's times, and every write sets a new one.
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from pathlib import Path

from recollect.verify.host import folder

SPARES_MAX = 2

_spares: dict[tuple[int, str], list[Path]] = {}
"""By process and version: a forked process has none of its parent's."""


def keep(data: Path, version: str) -> bool:
    """Keeps the folder of a cluster that is down as a spare; False if it is not needed."""
    spares = _spares.setdefault((os.getpid(), version), [])
    if len(spares) >= SPARES_MAX or not (data / "PG_VERSION").exists():
        return False
    spare = folder.current() / f"spare-{uuid.uuid4().hex}"
    try:
        data.rename(spare)
    except OSError:
        return False  # another file system
    spares.append(spare)
    return True


def take(data: Path, version: str, template: Path) -> bool:
    """Puts a spare, equal to the template, at `data`, which must not exist; False if there is none."""
    spares = _spares.get((os.getpid(), version), [])
    while spares:
        spare = spares.pop()
        try:
            _restore(spare, template)
            spare.rename(data)
        except OSError:
            shutil.rmtree(spare, ignore_errors=True)
            continue
        return True
    return False


def _restore(spare: Path, template: Path) -> None:
    wanted, found = _entries(template), _entries(spare)
    for name in sorted(found.keys() - wanted.keys(), reverse=True):  # a folder's contents before the folder
        path = spare / name
        path.rmdir() if stat.S_ISDIR(found[name].st_mode) else path.unlink()
    for name, status in sorted(wanted.items()):
        path = spare / name
        if stat.S_ISDIR(status.st_mode):
            path.mkdir(exist_ok=True)
        elif _changed(status, found.get(name)):
            shutil.copy2(template / name, path)
        if _owner(status) != _owner(found.get(name)):
            os.chown(path, status.st_uid, status.st_gid)
            path.chmod(stat.S_IMODE(status.st_mode))


def _entries(root: Path) -> dict[str, os.stat_result]:
    """Everything below, by its path from there."""
    found: dict[str, os.stat_result] = {}
    left = [""]
    while left:
        above = left.pop()
        with os.scandir(root / above) as entries:
            for entry in entries:
                name = f"{above}{entry.name}"
                found[name] = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    left.append(f"{name}/")
    return found


def _changed(wanted: os.stat_result, found: os.stat_result | None) -> bool:
    if found is None or not stat.S_ISREG(found.st_mode):
        return True
    return (wanted.st_size, wanted.st_mtime_ns) != (found.st_size, found.st_mtime_ns)


def _owner(status: os.stat_result | None) -> tuple[int, int, int] | None:
    return None if status is None else (status.st_uid, status.st_gid, status.st_mode)
