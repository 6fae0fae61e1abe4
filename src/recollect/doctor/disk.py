"""Which file system a folder is on, as far as it can be seen from here.

Data in memory (tmpfs) or in a container's own layer (overlay) is durable until the machine or the container
goes, whatever the engine promises. The engine's folder is only believed when one of its own processes is seen
to work in it: the same path on another machine, or inside another container, is another folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from recollect.doctor.diagnosis import Finding

VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs"})
LAYERED = frozenset({"overlay", "overlayfs", "aufs"})
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"}
)

OWN_MOUNTS = Path("/proc/self/mountinfo")


class Mount(NamedTuple):
    point: str
    kind: str


def mount_of(path: Path, mounts: str) -> Mount | None:
    """The mount that holds an absolute path; `mounts` is the text of a `/proc/…/mountinfo`."""
    best: Mount | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), fields[4])
        holds = point == "/" or path == Path(point) or Path(point) in path.parents
        # Of two mounts on one point the later one is seen.
        if holds and (best is None or len(point) >= len(best.point)):
            best = Mount(point, after.split()[0])
    return best


def mounts_of_process(pid: int, folder: str, names: tuple[str, ...]) -> str | None:
    """The mounts as an engine's process sees them, if it is on this machine and works in that folder."""
    process = Path("/proc") / str(pid)
    try:
        name = (process / "comm").read_text().strip()
        if not any(known in name for known in names) or str((process / "cwd").readlink()) != folder:
            return None
        return (process / "mountinfo").read_text()
    except OSError:
        return None


def folder_of_process(pid: int) -> str | None:
    """Where a process works, if it is on this machine and may be looked at."""
    try:
        return str((Path("/proc") / str(pid) / "cwd").readlink())
    except OSError:
        return None


def own_mounts() -> str | None:
    try:
        return OWN_MOUNTS.read_text()
    except OSError:
        return None


def look_at(folder: str, mounts: str | None, steps: tuple[str, ...]) -> Finding | None:
    """What the file system itself can lose; a note where it cannot be seen."""
    mount = None if mounts is None else mount_of(Path(folder), mounts)
    if mount is None:
        return Finding(
            name="disk-not-visible",
            level="note",
            sentence="the engine's file system cannot be seen from here: whether it is a disk was not checked",
            procedure=("on the engine's own machine, look with `df -T` at its data folder",),
        )
    if mount.kind in VOLATILE:
        return Finding(
            name="disk-in-memory",
            level="loss",
            sentence=f"can lose everything: the data is in memory ({mount.kind} at {mount.point}), not on a disk",
            when=("power-loss",),
            window="everything",
            setting=f"{folder} on {mount.kind}",
            procedure=steps,
        )
    if mount.kind in LAYERED:
        return Finding(
            name="disk-in-container-layer",
            level="loss",
            sentence=f"can lose everything: the data is in the container's own layer ({mount.kind}), which goes "
            "when the container is removed or recreated",
            when=("wipe-volume",),
            window="everything",
            setting=f"{folder} on {mount.kind}",
            procedure=steps,
        )
    if mount.kind in NETWORK:
        return Finding(
            name="disk-on-network",
            level="cannot-tell",
            sentence=f"the data is on a network file system ({mount.kind} at {mount.point}): whether an fsync "
            "there reaches a disk, and whether locks hold, is up to the server behind it",
            setting=f"{folder} on {mount.kind}",
            procedure=steps,
        )
    return None
