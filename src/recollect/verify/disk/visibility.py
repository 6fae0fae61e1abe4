"""Can the shim see into this program? Checked before an engine is started, so that the user gets a reason and
not a riddle.

LD_PRELOAD works through the dynamic loader. A static program has none, a set-user-id program ignores the variable, and
a script runs its interpreter instead. The shim asks for no particular libc, so glibc and musl load it alike. What
this check cannot tell (a program that enters the kernel by itself, io_uring) the self-check finds at the
end of the run.
"""

from __future__ import annotations

import os
import platform
import stat
import struct
from pathlib import Path

_MACHINES = {62: "x86_64", 183: "aarch64"}
_PT_DYNAMIC, _PT_INTERP = 2, 3
_SCRIPTS_MAX = 4


def cannot_see(executable: Path) -> str | None:
    """Why the disk recorder cannot see what this program does; None if it can."""
    for _ in range(_SCRIPTS_MAX):
        try:
            with executable.open("rb") as file:
                start = file.read(256)
                mode = os.fstat(file.fileno()).st_mode
                if start[:2] != b"#!":
                    return _judge(executable, start, mode, file.read(1 << 16))
        except OSError as error:
            return f"{executable} cannot be read: {error.strerror}"
        executable = Path(os.fsdecode(start[2:].split(b"\n")[0].split()[0]))
    return f"{executable} is a script run by a script run by a script: name the program itself"


def _judge(executable: Path, start: bytes, mode: int, rest: bytes) -> str | None:
    if start[:4] != b"\x7fELF" or start[4] != 2:
        return f"{executable} is not a 64-bit ELF program"
    machine = _MACHINES.get(struct.unpack_from("<H", start, 18)[0], "another architecture")
    if machine != platform.machine():
        return f"{executable} is built for {machine}, this machine is {platform.machine()}"
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return f"{executable} is set-user-id or set-group-id: the loader ignores LD_PRELOAD there"
    data = start + rest
    (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    kinds = {struct.unpack_from("<I", data, table + index * size)[0] for index in range(count)}
    if _PT_INTERP not in kinds:
        return f"{executable} is linked statically: nothing can be preloaded into it"
    return None
