"""The one temporary folder of a run: everything the run makes is below it, and it is removed when the run ends.

The warden removes it when the runner ends, killed or not. When the warden was killed as well (a whole cgroup,
the machine's power), the owner file inside says who owned it, and the next run sweeps it: the processes that
still work in it, their shared memory, the containers and volumes that carry its mark, and the folder.

The owner file proves that a run made this very folder (`recollect.verify.host.marker`, and the folder's inode number):
a folder that merely has a name like ours stays, and so does a copy. A folder whose run was killed before it could write
the file is empty, and stays too.

The owner is a pid with its start time, the boot, and the pid namespace: a pid alone is reused, and two containers that
share /tmp cannot see each other's processes, so they leave each other's folders alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from recollect.verify.host import processes, warden
from recollect.verify.host.errors import EngineError
from recollect.verify.host.marker import Marker

PREFIX = "recollect-run-"
_OWNER_FILE = "owner.json"
_FAREWELL_FILE = "farewell.json"
_SHARED_MEMORY_FILE = "shared-memory.jsonl"
_MEMORY_FILES = Path("/dev/shm")
_FAREWELL_TIMEOUT_S = 120.0
_GET_FLAGS, _SET_FLAGS, _TOP_FOLDER = 0x80086601, 0x40086602, 0x00020000  # FS_IOC_*FLAGS, FS_TOPDIR_FL
_SOCKET_PATH_MAX = 100  # bytes; sun_path holds 108, and PostgreSQL adds ".s.PGSQL.65535" (14) and ".lock"


@dataclass(frozen=True)
class RunOwner:
    pid: int
    started_ticks: int
    boot: str
    namespace: str

    def gone(self) -> bool:
        """True only when the owner is certainly gone."""
        if self.boot != _boot():
            return True
        if self.namespace != _namespace():
            return False
        return _started_ticks(self.pid) != self.started_ticks


@dataclass(frozen=True)
class Deed:
    """What the owner file says."""

    owner: RunOwner
    proof: str
    """The marker's proof, from which the folder's name is made."""
    number: int
    """The folder's inode number."""

    def written_for(self, folder: Path) -> bool:
        name = folder.name.removeprefix(PREFIX)
        return Marker(self.proof).proves(name) and self.number == folder.lstat().st_ino


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path, a name


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command name: state, parent, group, session, terminal, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _started_ticks(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def this_process() -> RunOwner:
    ticks = _started_ticks(os.getpid())
    assert ticks is not None
    return RunOwner(os.getpid(), ticks, _boot(), _namespace())


_folder: Path | None = None
_marker = Marker.new()
_lock = threading.Lock()


def current() -> Path:
    """The run folder of this process, made (and older ones swept) at the first call."""
    global _folder, _marker
    with _lock:
        if _folder is None or not _folder.is_dir():
            sweep()
            _marker = Marker.new()
            _folder = _make(Path(tempfile.gettempdir()), _marker)
        return _folder


def run_marker() -> Marker:
    """What proves that containers, volumes and networks are this run's."""
    current()
    return _marker


def _make(base: Path, marker: Marker) -> Path:
    folder = base / f"{PREFIX}{marker.name}"
    # First, since this starts the warden: a run that is killed between the two leaves no folder.
    processes.remove_at_end(folder)
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise EngineError(
            f"cannot make a folder for the run in {base}: {error.strerror};"
            " set TMPDIR to a folder you may write to"
        ) from error
    draft = folder / f"{_OWNER_FILE}.new"
    deed = Deed(this_process(), marker.proof, folder.lstat().st_ino)
    draft.write_bytes(msgspec.json.encode(deed))
    draft.rename(folder / _OWNER_FILE)
    folder.chmod(_passable())
    _spread_out(folder)
    return folder


def _passable() -> int:
    """The folder's mode: a server that refuses root runs as another user, who must be able to pass through."""
    return 0o711 if os.geteuid() == 0 else 0o700


def _spread_out(folder: Path) -> None:
    """Let ext4 put the folders below this one far apart (`chattr +T`), as it does with home folders.

    Everything under /tmp otherwise shares one group of inodes, where those deleted in the last seconds are
    skipped one by one: after some runs, making a file there takes forty times as long, and a PostgreSQL
    folder has a thousand.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        flags = struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0)))[0]
        fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags | _TOP_FOLDER))
    except OSError:
        return  # another filesystem, which does not need this
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Processes started in this block belong to this run: whatever they start and leave behind is ended with it."""
    former = os.environ.get(warden.MARK)
    os.environ[warden.MARK] = current().name
    try:
        yield
    finally:
        if former is None:
            del os.environ[warden.MARK]
        else:
            os.environ[warden.MARK] = former


def at_end(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """The command that removes what is not in the folder (containers, volumes): run when this process has
    ended, or, if the warden could not, by the sweep of the next run."""
    (current() / _FAREWELL_FILE).write_text(json.dumps({"argv": list(argv), "env": dict(env)}))
    processes.run_at_end(argv, env)


def subfolder(name: str, root: Path | None = None) -> Path:
    """A new folder `name`-N, below `root` or the run folder; nobody else may look into it."""
    parent = current() if root is None else root
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            with contextlib.suppress(FileExistsError):
                folder = parent / f"{name}-{number}"
                folder.mkdir(mode=0o700)
                return folder
    except OSError as error:
        raise EngineError(
            f"cannot make a data folder in {parent}: {error.strerror}; choose a folder you may write to"
        ) from error
    raise EngineError(f"{parent} holds 10000 folders called {name}-N; remove some")


def discard(path: Path) -> None:
    """Removes a path: it is gone from its place when this returns, and a folder of this run is deleted in the
    background."""
    if not path.exists():
        return
    if path.is_relative_to(current()):
        trash = current() / f"trash-{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):  # a mount point cannot be renamed
            path.rename(trash)
            processes.remove_now(trash)
            return
    shutil.rmtree(path, ignore_errors=True)


def socket_folder(preferred: Path) -> Path:
    """Where unix sockets go: `preferred`, or, when its path is too long for one, a short folder of this run."""
    if len(os.fsencode(preferred)) + len("/.s.PGSQL.65535.lock") <= _SOCKET_PATH_MAX:
        return preferred
    folder = subfolder("s")
    if len(os.fsencode(folder)) + len("/.s.PGSQL.65535.lock") > _SOCKET_PATH_MAX:
        folder = _make(Path("/tmp"), Marker.new())
    return folder


def note_shared_memory(process: processes.OwnedProcess) -> None:
    """Shared memory outlives a process that dies suddenly. What this process has is removed when it is killed, when
    it is found dead, or, if the warden could not, by the sweep of the next run."""
    process.note_shared_memory(current() / _SHARED_MEMORY_FILE)


def in_memory(bytes_needed: int) -> Path:
    """A new folder of this run, in memory if there is plenty (when it fills up, processes that have mapped a file in
    it get SIGBUS), else on disk."""
    if _MEMORY_FILES.is_dir() and shutil.disk_usage(_MEMORY_FILES).free > 2 * bytes_needed:
        with contextlib.suppress(EngineError):
            return _make(_MEMORY_FILES, Marker.new())
    return _make(Path(tempfile.gettempdir()), Marker.new())


def sweep() -> list[Path]:
    """Remove what runs that were killed together with their warden have left; return the folders removed."""
    swept = []
    for base in {Path(tempfile.gettempdir()), Path("/tmp"), _MEMORY_FILES}:
        for folder in base.glob(f"{PREFIX}*"):
            if _abandoned(folder):
                _end_processes_in(folder)
                _free_shared_memory(folder)
                _say_farewell(folder)
                shutil.rmtree(folder, ignore_errors=True)
                swept.append(folder)
    return swept


def _abandoned(folder: Path) -> bool:
    """A run of ours made it, and that run is over."""
    try:
        deed = _deed(folder)
    except (OSError, msgspec.DecodeError, RecursionError):
        return False
    return deed is not None and deed.owner.gone()


def _deed(folder: Path) -> Deed | None:
    """What the owner file says, if nobody but us can have written it, and for this very folder."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or not _ours_alone(status):
        return None
    file = folder / _OWNER_FILE
    if not _ours_alone(file.lstat()):
        return None
    deed = msgspec.json.decode(file.read_bytes(), type=Deed)
    return deed if deed.written_for(folder) else None


def _ours_alone(status: os.stat_result) -> bool:
    """Nobody else could have written it."""
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def processes_in(folder: Path) -> list[int]:
    """Processes that work in a folder: a server changes into its data folder and stays there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if Path(os.readlink(entry / "cwd")).is_relative_to(folder):  # noqa: PTH115
                    found.append(int(entry.name))
    return found


def _end_processes_in(folder: Path) -> None:
    """Ends those without a terminal, as engines are: a person who is looking around in there is left alone."""
    for pid in processes_in(folder):
        if _has_terminal(pid):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _has_terminal(pid: int) -> bool:
    fields = _stat_fields(pid)
    return fields is not None and fields[4] != "0"


def _free_shared_memory(folder: Path) -> None:
    """Removes what the servers of an abandoned run had, unless the machine was rebooted: then it is somebody else's."""
    try:
        deed = _deed(folder)
        notes = folder / _SHARED_MEMORY_FILE
        if deed is None or deed.owner.boot != _boot() or not _ours_alone(notes.lstat()):
            return
        for line in notes.read_bytes().splitlines():
            warden.free(msgspec.json.decode(line, type=dict[str, list[int]]))
    except (OSError, msgspec.DecodeError, RecursionError):
        # None was noted, or the last line is half written: nothing to go by.
        return


def _say_farewell(folder: Path) -> None:
    try:
        command = json.loads((folder / _FAREWELL_FILE).read_text())
        subprocess.run(
            command["argv"], env=command["env"], timeout=_FAREWELL_TIMEOUT_S, capture_output=True, check=False
        )
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        # Nothing outside the folder, or its daemon is gone: the folder is still removed.
        return


def _forget_in_child() -> None:
    global _folder, _lock
    _lock = threading.Lock()
    _folder = None


os.register_at_fork(after_in_child=_forget_in_child)
