"""`python -m recollect.verify.explore.interleavings.exploring_process`: explores one target, in a process of its own.

The store under test runs in it, with our event loop and our clock; what it prints goes to a file, and if it brings the
process down, the caller is told. The request is one line on standard input; the answers are one per line on what was
standard output: each program when it is done, and the whole result at the end.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import select
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import IO

import msgspec

from recollect.verify.engines import EngineError
from recollect.verify.explore.interleavings.explorer import Explorer, Listener
from recollect.verify.explore.interleavings.program import BadProgram
from recollect.verify.explore.interleavings.results import (
    InterleavingsAsked,
    InterleavingsFound,
)
from recollect.verify.explore.interleavings.words import AllDone, ProgramDone, Word
from recollect.verify.target.module_folders import import_from
from recollect.verify.target.worker import redirect_output
from recollect.verify.target.workers import TargetBroken


def main() -> None:
    gc.freeze()  # what was imported stays
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=InterleavingsAsked)
    with os.fdopen(os.dup(1), "wb") as out:
        redirect_output(Path(asked.folder) / "target.log")
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends us
        threading.Thread(target=_end_with_the_owner, daemon=True, name="recollect-owner").start()
        logging.disable(logging.WARNING)
        import_from(asked.path)
        try:
            _say(out, _explored(asked, lambda one: _say(out, ProgramDone(one))))
        except Exception:
            traceback.print_exc()
            _end(1)
    _end(0)


def _end(status: int) -> None:
    """Ends as Python does, but does not wait for threads that the store has left behind: they may never end."""
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(status)


def _explored(asked: InterleavingsAsked, listener: Listener) -> AllDone:
    try:
        explorer = Explorer(asked)
    except (EngineError, TargetBroken) as reason:
        return AllDone(InterleavingsFound(asked=asked, trouble=str(reason)), refused=True)
    try:
        if asked.replay is not None:
            return AllDone(*explorer.replay())
        return AllDone(explorer.explore(listener))
    except BadProgram as reason:
        return AllDone(InterleavingsFound(asked=asked, trouble=str(reason)), refused=True)
    finally:
        explorer.close()


def _end_with_the_owner() -> None:
    """When the caller is gone, nobody waits for the answer: ends this process, and the warden cleans up after it."""
    poller = select.poll()
    poller.register(0, 0)  # no events but the closing of the other end
    poller.poll()
    os.killpg(0, signal.SIGKILL)


def _say(stream: IO[bytes], word: Word) -> None:
    stream.write(msgspec.json.encode(word) + b"\n")
    stream.flush()


if __name__ == "__main__":
    main()
