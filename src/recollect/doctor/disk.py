"""What an engine's file system can lose, as far as it can be seen from here.

Data on a file system that forgets lasts only as long as the machine, the container or the pod, whatever the engine
promises. The engine's folder is believed only if one of its own processes is seen working in it: the same path on
another machine, or inside another container, is another folder.
"""

from __future__ import annotations

from pathlib import Path

from recollect.doctor.diagnosis import Symptom
from recollect.filesystems import mount_of, mountinfo_of

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"}
)


def mounts_of_process(pid: int, folder: str, names: tuple[str, ...]) -> str | None:
    """The mounts as the engine's process sees them, if it is on this machine and works in that folder."""
    process = Path("/proc") / str(pid)
    try:
        name = (process / "comm").read_text().strip()
        if not any(known in name for known in names) or str((process / "cwd").readlink()) != folder:
            return None
    except OSError:
        return None
    return mountinfo_of(pid)


def folder_of_process(pid: int) -> str | None:
    """The working folder of a process, if it is on this machine and we may look."""
    try:
        return str((Path("/proc") / str(pid) / "cwd").readlink())
    except OSError:
        return None


def look_at(folder: str, mounts: str | None, steps: tuple[str, ...]) -> Symptom | None:
    """What the file system itself can lose; a note if it cannot be seen."""
    mount = None if mounts is None else mount_of(folder, mounts)
    if mount is None:
        return Symptom(
            name="disk-not-visible",
            level="note",
            sentence="the engine's file system cannot be seen from here: so whether it is a disk was not checked",
            procedure=("on the engine's own machine, look with `df -T` at its data folder",),
        )
    if mount.goes_with == "memory":
        return Symptom(
            name="disk-in-memory",
            level="loss",
            sentence=f"can lose everything: the data is in memory ({mount.kind} at {mount.point}), not on a disk",
            when=("power-loss",),
            window="everything",
            setting=f"{folder} on {mount.kind}",
            procedure=steps,
        )
    if mount.goes_with == "container":
        return Symptom(
            name="disk-in-container-layer",
            level="loss",
            sentence=f"can lose everything: the data is in the container's own layer ({mount.kind}), which goes "
            "when the container is removed or recreated",
            when=("wipe-volume",),
            window="everything",
            setting=f"{folder} on {mount.kind}",
            procedure=steps,
        )
    if mount.goes_with == "pod":
        return Symptom(
            name="disk-in-pod",
            level="loss",
            sentence=f"can lose everything: the data is in a Kubernetes emptyDir ({mount.point}), which is deleted "
            "with the pod",
            when=("wipe-volume",),
            window="everything",
            setting=f"{folder} in an emptyDir",
            procedure=steps,
        )
    if mount.kind in NETWORK:
        return Symptom(
            name="disk-on-network",
            level="cannot-tell",
            sentence=f"the data is on a network file system ({mount.kind} at {mount.point}): whether an fsync "
            "there reaches a disk, and whether locks hold, is up to the server behind it",
            setting=f"{folder} on {mount.kind}",
            procedure=steps,
        )
    return None
