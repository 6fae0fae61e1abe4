"""Runs one program, and stays the parent of everything that it starts.

A program such as Patroni starts its server as a daemon: when the process in between ends, the server belongs to
whoever reaps orphans. This small process does, so that the server stays below it: what is signalled, frozen or killed
with all its descendants (see `warden`) is both of them.

It runs as `python -I -S -c SOURCE PROGRAM ARGUMENT…`: as another user it may not be able to read this file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def hold(argv: list[str]) -> int:
    """Until the program ends; asked to stop, it asks the program. The exit status is the program's."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    program = os.fork()
    if program == 0:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        os.execv(argv[0], argv)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(program, number))
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    ended = hold(sys.argv[1:])
    os._exit(ended if ended >= 0 else 128 - ended)
