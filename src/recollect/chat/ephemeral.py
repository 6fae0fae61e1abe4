"""Is this folder on storage that dies with the machine, the container or the pod?

Read from ``/proc/self/mountinfo``, which names the file system under every mount point. What it cannot tell (a host
path on a disk that is thrown away, a volume that an operator deletes) it does not guess; the witness finds those later.
"""

import os
import re
from pathlib import Path

import msgspec

from recollect.errors import CannotOpen

MOUNTINFO = Path("/proc/self/mountinfo")

_IN_MEMORY = {"tmpfs": "a tmpfs, which is memory", "ramfs": "a ramfs, which is memory", "devtmpfs": "memory"}
_OVERLAYS = {
    "overlay": "a container's own layer (overlay)",
    "aufs": "a container's own layer (aufs)",
    "fuse.fuse-overlayfs": "a container's own layer (fuse-overlayfs)",
    "unionfs": "a union file system",
}
_EMPTY_DIR = re.compile(r"/kubelet/pods/[^/]+/volumes/kubernetes\.io~empty-dir/|/kubernetes\.io~empty-dir/")


class Mount(msgspec.Struct, frozen=True):
    point: str
    root: str
    """The folder of the file system that is mounted here."""
    kind: str
    source: str


class EphemeralStorage(CannotOpen):
    """Memory kept here would be forgotten with the container."""


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The mounts in their order; later ones cover earlier ones. Lines that are not as documented are left out."""
    mounts = []
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if separator and len(fields) >= 6 and len(rest) >= 2:
            mounts.append(Mount(_plain(fields[4]), _plain(fields[3]), rest[0], _plain(rest[1])))
    return mounts


def mount_of(path: str, mounts: list[Mount]) -> Mount | None:
    """The mount that a path, absolute and without links, lies on: the longest point above it, the last of equals."""
    found = None
    for mount in mounts:
        above = mount.point == "/" or path == mount.point or path.startswith(f"{mount.point}/")
        if above and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def ephemeral_reason(path: str, mountinfo: str) -> str | None:
    """Why memory at this path would not outlive the container, or None if nothing says so."""
    mount = mount_of(path, parse_mounts(mountinfo))
    if mount is None:
        return None
    if _EMPTY_DIR.search(mount.root) or _EMPTY_DIR.search(mount.source):
        return f"{mount.point} is a Kubernetes emptyDir, which is deleted with the pod"
    kind = _IN_MEMORY.get(mount.kind) or _OVERLAYS.get(mount.kind)
    return None if kind is None else f"{mount.point} is {kind}"


def refuse_ephemeral(folder: Path, mountinfo_path: Path = MOUNTINFO) -> None:
    """Raises `EphemeralStorage` with one sentence; does nothing where there is no mountinfo (not Linux)."""
    try:
        mountinfo = mountinfo_path.read_text(errors="surrogateescape")
    except OSError:
        return
    reason = ephemeral_reason(os.path.realpath(folder), mountinfo)
    if reason is not None:
        raise EphemeralStorage(
            f"{folder} would be forgotten: {reason}; mount a persistent volume there, or pass --allow-ephemeral to "
            "go on all the same"
        )


def _plain(field: str) -> str:
    """Space, tab, line end and backslash are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
