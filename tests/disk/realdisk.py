"""Power loss on a real file system: ext4 or XFS on a loop device, shut down without flushing its log.

The ioctl GOINGDOWN makes the kernel drop everything that is not on the device at that moment, journal
included; unmounting and mounting again then recovers as after a power cut. It is what the durability model
is compared with. It needs root, loop devices and mkfs; `why_not` says what is missing.

The image file is of fixed size, so nothing that a damaged store does can fill the machine's disk, and it is
unmounted, detached and removed whatever happens.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Literal

FileSystem = Literal["ext4", "xfs"]
FILE_SYSTEMS: tuple[FileSystem, ...] = ("ext4", "xfs")
_GOINGDOWN = 0x8004587D  # _IOR('X', 125, __u32), the same number for ext4 and XFS
_WITHOUT_LOG_FLUSH = 2
_TIMEOUT_S = 60
_MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
_SIZE_MB = {"ext4": 256, "xfs": 300}  # mkfs.xfs refuses less than 300


def why_not(file_system: FileSystem) -> str | None:
    """The reason why this machine cannot do it; None if it can."""
    if os.geteuid() != 0:
        return "a real power loss needs root: it mounts a loop device"
    for program in (_MKFS[file_system][0], "losetup", "mount", "umount"):
        if _program(program) is None:
            return f"{program} is not installed"
    try:
        with RealDisk(file_system):
            return None
    except OSError as error:
        return f"{file_system} on a loop device does not work here: {error}"


class RealDisk:
    """A mounted file system of its own; `folder` is where."""

    def __init__(self, file_system: FileSystem, size_mb: int | None = None) -> None:
        self.file_system = file_system
        self._home = Path(tempfile.mkdtemp(prefix="recollect-realdisk-"))
        self._home.chmod(0o711)
        self._image = self._home / "image"
        self._device: str | None = None
        self.folder = self._home / "mounted"
        self.folder.mkdir()
        try:
            with self._image.open("wb") as file:
                file.truncate((size_mb or _SIZE_MB[file_system]) << 20)
            _run(*_MKFS[file_system], str(self._image))
            self._mount()
            self.folder.chmod(0o777)
            self.settle()
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        """Everything so far is on the device: a recording's base must be."""
        _run("sync", "--file-system", str(self.folder))

    def _mount(self) -> None:
        """Always by a new loop device: a process in another mount namespace may still hold the old one, and
        mounting that again would give the dead file system back."""
        # Without direct I/O the image file's page cache would be a second memory that no power loss empties.
        self._device = _run("losetup", "--find", "--show", "--direct-io=on", str(self._image)).strip()
        options = ["-o", "nouuid"] if self.file_system == "xfs" else []
        _run("mount", "-t", self.file_system, *options, self._device, str(self.folder))

    @property
    def mounted(self) -> bool:
        """By the kernel's list: os.path.ismount says no of a file system that has been shut down."""
        with Path("/proc/self/mountinfo").open(errors="surrogateescape") as lines:
            return any(line.split(" ")[4] == str(self.folder) for line in lines)

    def _unmount(self, *how: str) -> None:
        with contextlib.suppress(OSError):
            if self.mounted:
                _run("umount", *how, str(self.folder))
        if self._device is not None:
            with contextlib.suppress(OSError):
                _run("losetup", "--detach", self._device)
            self._device = None

    def power_loss(self) -> None:
        """From here on nothing reaches the device; every call on the folder fails with EIO."""
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _GOINGDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(fd)

    def recover(self) -> None:
        """Mount again, as after a reboot. No process may still use the folder."""
        self._unmount()
        if self.mounted:
            raise OSError(f"{self.folder} is still in use: end the processes that have files open there")
        self._mount()

    def close(self) -> None:
        self._unmount("--lazy")
        shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> RealDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _run(program: str, *arguments: str) -> str:
    """OSError with the program's own words when it fails."""
    found = _program(program)
    if found is None:
        raise OSError(f"{program} is not installed")
    try:
        done = subprocess.run(
            [found, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{program} did not end within {_TIMEOUT_S} s") from error
    if done.returncode:
        raise OSError(f"{program} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout
