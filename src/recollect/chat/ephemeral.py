"""Refuses to keep memory, unless told otherwise, on storage that dies with the machine, the container or the pod.

What mountinfo does not show, the witness catches later.
"""

from pathlib import Path

from recollect.errors import CannotOpen
from recollect.filesystems import mount_under


class EphemeralStorage(CannotOpen):
    """Memory kept here would be forgotten with the container."""


def why_it_forgets(folder: Path) -> str | None:
    """None for a disk, and where there is no mountinfo (not Linux)."""
    mount = mount_under(folder)
    return None if mount is None else mount.why_it_forgets


def refuse_ephemeral(folder: Path) -> None:
    """Raises `EphemeralStorage` with one sentence."""
    reason = why_it_forgets(folder)
    if reason is not None:
        raise EphemeralStorage(
            f"{folder} would be forgotten: {reason}; mount a persistent volume there, or pass --allow-ephemeral to "
            "go on anyway"
        )
