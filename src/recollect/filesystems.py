"""Which file system a path is on, and whether that file system forgets.

Linux lists mounts in `/proc/PID/mountinfo`. Three kinds of storage forget no matter what fsync returns: memory (tmpfs,
ramfs) goes with the machine, a container's own layer (overlay) with the container, a Kubernetes emptyDir with the
pod. Nothing is guessed that mountinfo cannot tell, such as a disk thrown away or a volume an operator deletes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "rootfs"})
LAYERS = frozenset({"overlay", "overlayfs", "aufs", "unionfs", "fuse.fuse-overlayfs"})
_EMPTY_DIR = "/kubernetes.io~empty-dir/"


class Mount(NamedTuple):
    """One line of mountinfo."""

    number: int
    parent: int
    root: str
    """Which folder of the file system is mounted."""
    point: str
    """Where it is mounted."""
    kind: str
    source: str

    @property
    def goes_with(self) -> Literal["memory", "container", "pod"] | None:
        """Whose end takes the data along; None if nothing says that the data can go."""
        if self.kind in MEMORY:
            return "memory"
        if self.kind in LAYERS:
            return "container"
        return "pod" if _EMPTY_DIR in self.root or _EMPTY_DIR in self.source else None

    @property
    def why_it_forgets(self) -> str | None:
        """`/dev/shm is a tmpfs, which is memory`, or None if nothing says that it forgets."""
        match self.goes_with:
            case "memory":
                return f"{self.point} is a {self.kind}, which is memory"
            case "container":
                return f"{self.point} is a container's own layer ({self.kind.removeprefix('fuse.')})"
            case "pod":
                return f"{self.point} is a Kubernetes emptyDir, which is deleted with the pod"
            case None:
                return None


def mount_of(path: str | Path, mountinfo: str) -> Mount | None:
    """The mount that a path lies on; None if mountinfo does not list it. The path is absolute and without links.

    Walks down from the root as the kernel does: where a file system is mounted on the way, the path continues inside
    it, and anything mounted further down earlier is hidden.
    """
    mounts = _parse(mountinfo)
    numbers = {mount.number for mount in mounts}
    above = [mount for mount in mounts if _holds(mount.point, str(path))]
    here: Mount | None = None
    while True:
        inside = [mount for mount in above if _lies_in(mount, here, numbers)]
        if not inside:
            return here
        here = min(inside, key=lambda mount: len(mount.point))
        above.remove(here)


def mountinfo_of(process: int | Literal["self"] = "self") -> str | None:
    """The mounts as a process on this machine sees them; None if they cannot be read (or this is not Linux)."""
    try:
        # A mount point may have any bytes in its name.
        return Path(f"/proc/{process}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def mount_under(path: Path) -> Mount | None:
    """The mount that a file or folder of this process is on, links resolved; it need not exist yet."""
    mountinfo = mountinfo_of()
    return None if mountinfo is None else mount_of(os.path.realpath(path), mountinfo)


def _parse(mountinfo: str) -> list[Mount]:
    """The mounts; lines that do not look as proc(5) documents them are left out."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) >= 6 and len(rest) >= 2 and fields[0].isdecimal() and fields[1].isdecimal():
            root, point, source = map(_plain, (fields[3], fields[4], rest[1]))
            mounts.append(Mount(int(fields[0]), int(fields[1]), root, point, rest[0], source))
    return mounts


def _plain(field: str) -> str:
    """Space, tab, line end and backslash are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _holds(point: str, path: str) -> bool:
    return point == "/" or path == point or path.startswith(f"{point}/")


def _lies_in(mount: Mount, here: Mount | None, numbers: set[int]) -> bool:
    if here is None:  # a process in a chroot does not see the mount that its root is on
        return mount.parent not in numbers or mount.parent == mount.number
    return mount.parent == here.number
