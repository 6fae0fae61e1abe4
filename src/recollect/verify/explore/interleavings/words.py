"""What the exploring process and its caller say to each other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from recollect.verify.explore.interleavings.results import (
    InterleavingsAsked,
    InterleavingsFound,
    ProgramExplored,
)
from recollect.verify.explore.interleavings.world import LoggedStep

GRACE_S = 90.0
"""For starting the engine, confirming a failure, and closing; a process that takes longer hangs."""


class ProgramDone(msgspec.Struct, frozen=True, tag="program"):
    """One program went through one round."""

    explored: ProgramExplored


class AllDone(msgspec.Struct, frozen=True, tag="done"):
    """The whole result. `steps` are those of a replayed schedule; `refused` says that nothing could be opened."""

    found: InterleavingsFound
    steps: tuple[LoggedStep, ...] = ()
    refused: bool = False


Word = ProgramDone | AllDone
_decode = msgspec.json.Decoder(Word).decode


def explore_interleavings(
    asked: InterleavingsAsked,
    listener: Callable[[ProgramExplored], None] = lambda one: None,
) -> AllDone:
    """Explores in a process of its own, and waits for it; if that process dies or hangs, the result says so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect.verify.explore.interleavings.exploring_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(asked) + b"\n")
            process.stdin.flush()  # left open: when this process ends, that one notices
        return _heard(process, asked, listener)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def _heard(
    process: subprocess.Popen[bytes],
    asked: InterleavingsAsked,
    listener: Callable[[ProgramExplored], None],
) -> AllDone:
    end = time.monotonic() + asked.seconds + GRACE_S if asked.until_s is None else asked.until_s
    programs: dict[str, ProgramExplored] = {}
    for line in _lines(process, end):
        word = _decode(line)
        if isinstance(word, AllDone):
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(1.0, end - time.monotonic()))
            return word
        programs[word.explored.program] = word.explored
        listener(word.explored)
    ended = process.poll()
    why = "it did not come back in time" if ended is None else f"its process ended ({ended})"
    found = InterleavingsFound(asked=asked, programs=list(programs.values()))
    found.trouble = f"{why}; what it said is in {asked.folder}/target.log"
    return AllDone(found)


def _lines(process: subprocess.Popen[bytes], end: float) -> Iterator[bytes]:
    """What it says, line by line, until it ends or time is up."""
    assert process.stdout is not None
    number, rest = process.stdout.fileno(), b""
    while (left := end - time.monotonic()) > 0:
        if not select.select([number], [], [], left)[0]:
            return
        chunk = os.read(number, 1 << 16)
        if not chunk:
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
