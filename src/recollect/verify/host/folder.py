"""The one temporary folder of a run: everything the run makes is below it, and it goes when the run goes.

The warden removes it when the runner ends, killed or not. When the warden was killed as well (a whole cgroup,
the machine's power), the pid file inside says who owned it, and the next run sweeps it: the processes that
still work in it, the containers and volumes that carry its name, and the folder.

The owner is a pid with its start time, the boot, and the pid namespace: a pid alone comes round again, and
two containers that share /tmp cannot see each other's processes, so they leave each other's folders alone.
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
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from recollect.verify.host import processes, warden
from recollect.verify.host.errors import EngineError

PREFIX = "recollect-run-"
_OWNER_FILE = "owner.json"
_FAREWELL_FILE = "farewell.json"
_FAREWELL_TIMEOUT_S = 120.0
_UNOWNED_AGE_S = 3600.0
_GET_FLAGS, _SET_FLAGS, _TOP_FOLDER = 0x80086601, 0x40086602, 0x00020000  # FS_IOC_*FLAGS, FS_TOPDIR_FL
_SOCKET_PATH_MAX = 100  # bytes; sun_path holds 108, and PostgreSQL adds ".s.PGSQL.65535" (14) and ".lock"


@dataclass(frozen=True)
class Owner:
    pid: int
    started_ticks: int
    boot: str
    namespace: str

    def gone(self) -> bool:
        """True only when it certainly is."""
        if self.boot != _boot():
            return True
        if self.namespace != _namespace():
            return False
        return _started_ticks(self.pid) != self.started_ticks


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path, a name


def _started_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def this_process() -> Owner:
    ticks = _started_ticks(os.getpid())
    assert ticks is not None
    return Owner(os.getpid(), ticks, _boot(), _namespace())


_folder: Path | None = None
_lock = threading.Lock()


def current() -> Path:
    """The run folder of this process, made (and older ones swept) at the first call."""
    global _folder
    with _lock:
        if _folder is None or not _folder.is_dir():
            sweep()
            _folder = _make()
        return _folder


def run_id() -> str:
    """The name that containers, volumes and namespaces of this run carry."""
    return current().name.removeprefix(PREFIX)


def _make() -> Path:
    base = Path(tempfile.gettempdir())
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    except OSError as error:
        raise EngineError(
            f"cannot make a folder for the run in {base}: {error.strerror};"
            " set TMPDIR to a folder you may write to"
        ) from error
    folder.chmod(0o711)  # a server that refuses root runs as another user, who must be able to pass through
    _spread_out(folder)
    draft = folder / f"{_OWNER_FILE}.new"
    draft.write_text(json.dumps(asdict(this_process())))
    draft.rename(folder / _OWNER_FILE)
    processes.remove_at_end(folder)
    return folder


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
        return  # another filesystem, which does not have the habit
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def marked() -> Iterator[None]:
    """Processes that are started in this block belong to this run: whatever they start and leave is ended with it."""
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
    """A new folder `name`-N, below `root` or the run folder."""
    parent = current() if root is None else root
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            with contextlib.suppress(FileExistsError):
                folder = parent / f"{name}-{number}"
                folder.mkdir(mode=0o711)
                return folder
    except OSError as error:
        raise EngineError(
            f"cannot make a data folder in {parent}: {error.strerror}; choose a folder you may write to"
        ) from error
    raise EngineError(f"{parent} holds 10000 folders called {name}-N; remove some")


def discard(path: Path) -> None:
    """Gone from its place when this returns; its removal goes on in the background when it is a folder of
    this run."""
    if not path.exists():
        return
    if path.is_relative_to(current()):
        trash = current() / f"trash-{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):  # a filesystem of its own cannot be renamed
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
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        folder.chmod(0o711)
        (folder / _OWNER_FILE).write_text(json.dumps(asdict(this_process())))
        processes.remove_at_end(folder)
    return folder


def sweep() -> list[Path]:
    """Remove what runs that were killed together with their warden have left; return the folders removed."""
    swept = []
    for base in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for folder in base.glob(f"{PREFIX}*"):
            if _abandoned(folder):
                _end_processes_in(folder)
                _say_farewell(folder)
                shutil.rmtree(folder, ignore_errors=True)
                swept.append(folder)
    return swept


def _abandoned(folder: Path) -> bool:
    try:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        owner = Owner(**json.loads((folder / _OWNER_FILE).read_text()))
    except FileNotFoundError:
        # Being made right now, or the owner file was never written.
        return folder.exists() and time.time() - folder.lstat().st_mtime > _UNOWNED_AGE_S
    except (OSError, ValueError, TypeError):
        return False
    return owner.gone()


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
    for pid in processes_in(folder):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _say_farewell(folder: Path) -> None:
    try:
        command = json.loads((folder / _FAREWELL_FILE).read_text())
        subprocess.run(
            command["argv"], env=command["env"], timeout=_FAREWELL_TIMEOUT_S, capture_output=True, check=False
        )
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        # Nothing outside the folder, or its daemon is gone: the folder is removed all the same.
        return


def _forget_in_child() -> None:
    global _folder, _lock
    _lock = threading.Lock()
    _folder = None


os.register_at_fork(after_in_child=_forget_in_child)
