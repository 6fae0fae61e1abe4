"""The process that starts every engine process and outlives the runner just long enough to end them.

A runner can be SIGKILLed. Nothing of it may remain: not a server, not a child of a server, not a folder. The
parent-death signal alone is not enough (it follows the death of the forking *thread*, is cleared by setuid,
and reaches only direct children), so engines are not children of the runner but of this small program:

    runner ──socket──▶ warden ──fork──▶ redis-server, postgres, … ──fork──▶ their children

- It is the subreaper of all of them: orphaned grandchildren become its children and are reaped, whatever pid 1 does.
- When the runner goes away (its pidfd turns readable, or the socket closes) it kills all its descendants,
  ends what the target's own processes have started and left behind, runs the farewell command (containers and volumes),
  removes the folders that it was given, and ends.
- It has one thread, so the parent-death signal that it sets on each child means what it says: if the warden
  itself is killed, the servers follow. It is set after the uid change, which would clear it.
- Shared memory outlives a process that is killed. A PostgreSQL that stops cleanly removes its own; for one that is
  killed the warden does it, or the machine would run out after some thousand kills. A segment is identified by the
  process that has it mapped, never by its name, and noted once a server has started (`note`), because a server that
  dies by itself cannot be asked. If the warden itself is killed, the next run removes what was noted (`folder.sweep`).
- Forking this small process costs a millisecond; forking a runner with drivers and threads costs more and is not safe.

It runs as `python -I -S warden.py`, so it imports only the standard library, and little of it. Requests and answers
are JSON, one per line. It ignores SIGINT and SIGTERM: Ctrl-C in a terminal is for the runner.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_WITHOUT_PIDFD_S = 0.1
_REAP_DEADLINE_S = 10.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)

MARK = "RECOLLECT_RUN"
"""The environment variable that names the run folder, in the target's processes and all that they start."""

_libc = ctypes.CDLL(None, use_errno=True)


def children_of(pid: int) -> list[int]:
    """Direct children; on a kernel without CONFIG_PROC_CHILDREN, found by reading every process's parent."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:
        return [] if _has_proc_children() else _children_by_scan(pid)
    except ProcessLookupError:
        return []


def _has_proc_children() -> bool:
    me = os.getpid()
    return os.path.exists(f"/proc/{me}/task/{me}/children")  # noqa: PTH110


def _children_by_scan(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and _stat_fields(int(entry))[1:2] == [str(pid)]:
            found.append(int(entry))
    return found


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name: state, parent, …; empty when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _environment(pid: int) -> set[bytes]:
    """The environment that a process was started with; empty if we may not read it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children_of(queue.pop())
        found += below
        queue += below
    return found


_SHARED = "/dev/shm/PostgreSQL."
_SYSTEM_V = "/proc/sysvipc/shm"
_IPC_RMID = 0
_CONTROL_MAGIC = 0x9A503D32
_CONTROL_HEADER, _CONTROL_ITEM = struct.Struct("=III4x"), struct.Struct("=II32x")


def shared_memory_of(pids: list[int]) -> dict[str, list[int]]:
    """The shared memory that these processes have mapped and that outlives them: System V segments by number,
    PostgreSQL's own by path."""
    found: dict[str, list[int]] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                lines = [line.split(maxsplit=5) for line in file]
        except OSError:
            continue
        for *_, inode, name in (fields for fields in lines if len(fields) == 6):
            place = inode if name.startswith("/SYSV") else name.strip()
            ours = place.isdigit() or (place.startswith(_SHARED) and place[len(_SHARED) :].isdigit())
            if ours and (identity := _identity(place)) is not None:
                found[place] = identity
    return found


def _identity(place: str) -> list[int] | None:
    """None when it is gone."""
    if not place.isdigit():
        try:
            status = os.stat(place, follow_symlinks=False)  # noqa: PTH116
        except OSError:
            return None
        return [status.st_dev, status.st_ino, status.st_uid]
    with open(_SYSTEM_V, encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            key, number, _, size, creator, _, _, _, _, owner, *rest = line.split()
            if number == place:
                return [int(key), int(size), int(creator), int(owner), int(rest[3])]
    return None


def free(segments: dict[str, list[int]]) -> None:
    """Remove segments that are still the same as when they were found. The processes that had them must be dead."""
    for place, identity in segments.items():
        if _identity(place) != identity:
            continue
        if place.isdigit():
            _libc.shmctl(int(place), _IPC_RMID, None)
            continue
        for path in [*_listed_in(place), place]:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108


def _listed_in(path: str) -> list[str]:
    """Segments that a server's processes made later, which no living process need have mapped. PostgreSQL lists their
    numbers in the segment that the first process made, and after a crash removes them by that list itself
    (`dsm_cleanup_using_control_segment`). An odd number means a segment inside the main one."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            raw = file.read()
        magic, used, most = _CONTROL_HEADER.unpack_from(raw)
    except (OSError, struct.error):
        return []
    if magic != _CONTROL_MAGIC or used > most:
        return []
    items = raw[_CONTROL_HEADER.size :][: used * _CONTROL_ITEM.size]
    whole = items[: len(items) // _CONTROL_ITEM.size * _CONTROL_ITEM.size]
    return [
        f"{_SHARED}{handle}"
        for handle, references in _CONTROL_ITEM.iter_unpack(whole)
        if references and handle and not handle & 1
    ]


def _running(pid: int) -> bool:
    state = _stat_fields(pid)[:1]
    return bool(state) and state[0] not in "ZX"


def _signal_quietly(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Warden:
    def __init__(self, runner: int) -> None:
        self.runner = runner
        self.status: dict[int, int] = {}
        """Exit status of every process that was spawned and has ended (negative: the signal)."""
        self.spawned: set[int] = set()
        self.folders: list[str] = []
        self.farewell: dict[str, Any] | None = None
        self.noted: dict[int, dict[str, list[int]]] = {}
        """The shared memory that a spawned process had when it was last looked at."""

    # Requests -------------------------------------------------------------------------------------

    def spawn(self, request: dict[str, Any]) -> dict[str, Any]:
        """Fork and exec; the child's failure to exec comes back through a pipe that exec closes."""
        read_end, write_end = os.pipe()
        warden = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._become(request, warden)
            except BaseException as error:
                # Whatever it is, the runner must hear about it, and this copy of the warden must not go on.
                os.write(write_end, f"{type(error).__name__}: {error}".encode())
            os._exit(127)
        os.close(write_end)
        complaint = b""
        while part := os.read(read_end, 4096):
            complaint += part
        os.close(read_end)
        self.status.pop(pid, None)  # of an earlier process with the same number
        free(self.noted.pop(pid, {}))
        self.spawned.add(pid)
        if complaint:
            self._kill_tree(pid)
            return {"error": complaint.decode(errors="replace")}
        return {"pid": pid}

    def _become(self, request: dict[str, Any], warden: int) -> None:
        log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.setsid()
        for number in (*_IGNORED, signal.SIGXFSZ):  # an ignored signal stays ignored through exec
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o077)
        os.chdir(request["cwd"])
        if request["uid"] is not None:
            os.setgroups([])
            os.setgid(request["gid"])
            os.setuid(request["uid"])
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != warden:  # it died before the signal was asked for
            os._exit(127)
        os.execve(request["argv"][0], request["argv"], request["env"])

    def poll(self, request: dict[str, Any]) -> dict[str, Any]:
        self._reap()
        return {"status": self.status.get(request["pid"])}

    def signal(self, request: dict[str, Any]) -> dict[str, Any]:
        self._reap()
        pid = request["pid"]
        if pid in self.status:
            return {"delivered": False}
        below = descendants_of(pid) if request["tree"] else []
        for member in [pid, *below]:
            _signal_quietly(member, request["number"])
        return {"delivered": True}

    def note(self, request: dict[str, Any]) -> dict[str, Any]:
        """Look at what shared memory a process has, and write it down in case it must be removed without us."""
        pid = request["pid"]
        found = shared_memory_of([pid])
        if found and pid in self.spawned:
            self.noted[pid] = found
            descriptor = os.open(
                request["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600
            )
            os.write(descriptor, json.dumps(found).encode() + b"\n")
            os.close(descriptor)
        return {}

    def kill(self, request: dict[str, Any]) -> dict[str, Any]:
        left = self._kill_tree(request["pid"])
        return {"error": f"processes {left} did not end"} if left else {}

    def remove_now(self, request: dict[str, Any]) -> dict[str, Any]:
        """Remove a folder without keeping anyone waiting: where deleting means discarding blocks it takes seconds."""
        pid = os.fork()
        if pid == 0:
            os.close(0)
            os.nice(5)
            self.folders = [request["folder"]]
            self._remove_folders()
            os._exit(0)
        self.spawned.add(pid)
        return {}

    def remove_later(self, request: dict[str, Any]) -> dict[str, Any]:
        self.folders.append(request["folder"])
        return {}

    def set_farewell(self, request: dict[str, Any]) -> dict[str, Any]:
        self.farewell = request
        return {}

    def end_strays(self, request: dict[str, Any]) -> dict[str, Any]:
        """Kill what the target's processes started and left behind when they ended.

        They are not our descendants. They are recognised by the name of a run folder in their environment, which they
        inherit, and by a parent without that mark: what a living client has started is left to it.
        """
        give_up = time.monotonic() + _REAP_DEADLINE_S
        ended: set[int] = set()
        while (strays := self._strays()) and time.monotonic() < give_up:
            for pid in strays:
                _signal_quietly(pid, signal.SIGKILL)
            ended |= set(strays)
            time.sleep(0.001)
        return {"ended": len(ended)}

    def _strays(self) -> list[int]:
        marks = {f"{MARK}={os.path.basename(folder)}".encode() for folder in self.folders}  # noqa: PTH119
        marked = {
            int(entry): _stat_fields(int(entry))
            for entry in os.listdir("/proc")  # noqa: PTH208
            if entry.isdigit() and marks & _environment(int(entry))
        }
        family = {*marked, self.runner}
        return [
            pid
            for pid, fields in marked.items()
            if fields and fields[0] not in "ZX" and int(fields[1]) not in family
        ]

    # Ending ---------------------------------------------------------------------------------------

    def _kill_tree(self, root: int) -> list[int]:
        """Kill the root first, so that it forks nothing more, then all below it; return those that would not
        go.

        What the root forked between the listing and its death has become our child, as an orphan, by the time the
        root is reaped, and is recognised because it was not an orphan before. The kernel's list of children
        may leave some out while others exit, so only a listing during which nothing was reaped is believed.

        A root that has ended by itself has left its children as orphans: all present orphans are killed, since the
        children of living roots are not orphans.
        """
        self._reap()
        orphans_before = self._orphans() if root not in self.status else set()
        members = set(descendants_of(root)) if root not in self.status else set()
        shared = self.noted.pop(root, {}) | shared_memory_of([root, *members])
        if root not in self.status:
            _signal_quietly(root, signal.SIGKILL)
        for member in members:
            _signal_quietly(member, signal.SIGKILL)
        give_up = time.monotonic() + _REAP_DEADLINE_S
        while True:
            reaped = self._reap()
            late = self._orphans() - orphans_before - members
            for member in late:
                _signal_quietly(member, signal.SIGKILL)
            members |= late
            left = [pid for pid in members if _running(pid)]
            if root in self.status and not (left or late or reaped or self._reap()):
                free(shared)
                return []
            if time.monotonic() > give_up:
                return left or [root]
            if not reaped:
                time.sleep(0.0005)

    def _orphans(self) -> set[int]:
        return set(children_of(os.getpid())) - self.spawned

    def _reap(self) -> int:
        """Reap all that have ended; return how many."""
        count = 0
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return count
            if pid == 0:
                return count
            count += 1
            if pid in self.spawned:
                self.spawned.discard(pid)
                self.status[pid] = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        give_up = time.monotonic() + _REAP_DEADLINE_S
        shared = shared_memory_of(descendants_of(os.getpid()))
        for noted in self.noted.values():
            shared |= noted
        while (below := descendants_of(os.getpid())) and time.monotonic() < give_up:
            for pid in below:
                _signal_quietly(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.001)
        free(shared)
        self.end_strays({})
        if self.farewell:
            argv, env = self.farewell["argv"], self.farewell["env"]
            os.waitpid(os.posix_spawn(argv[0], argv, env), 0)
        self._remove_folders()

    def _remove_folders(self) -> None:
        import shutil

        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    # The loop -------------------------------------------------------------------------------------

    def serve(self, channel: int) -> None:
        poller = select.poll()
        poller.register(channel, select.POLLIN)
        wait_ms: int | None = None
        try:
            poller.register(os.pidfd_open(self.runner), select.POLLIN)
        except (AttributeError, OSError):
            wait_ms = int(_POLL_WITHOUT_PIDFD_S * 1000)
        pending = b""
        while True:
            ready = [descriptor for descriptor, _ in poller.poll(wait_ms)]
            if os.getppid() != self.runner or (ready and ready != [channel]):
                return
            if channel not in ready:
                continue
            received = os.read(channel, 1 << 16)
            if not received:
                return
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                request = json.loads(line)
                answer = {**self._answer(request), "number": request["request"]}
                os.write(channel, json.dumps(answer).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self, request["op"])(request)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
        return answer


def main() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    warden = Warden(runner=int(sys.argv[1]))
    try:
        warden.serve(channel=0)
    finally:
        warden.end()


if __name__ == "__main__":
    main()
