"""Reading a store on one crash state, in a process that ends with it.

A store may leave anything behind: a connection that nobody closes, a cache, a thread. SQLite itself keeps locks and its
index of the log per process and file. On the next state of the same files all of that is wrong, and the store would be
accused of something left over from the state before. So each state is read in a fork, which ends with everything it
started once it has answered. Only its imports are repeated in this process, or every fork would import them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import os
import pickle
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recollect.verify.engines import Endpoint
from recollect.verify.target import outcomes, pipe, returned
from recollect.verify.target.login import logged_in
from recollect.verify.target.target import Target, resolve

READ_TIMEOUT_S = 60.0
_PR_SET_PDEATHSIG = 1

Reading = Mapping[str, pipe.Elements | str]
"""What was read from each session; a text is the error that the read raised."""


class Reader:
    """Reads one target, on one state after another."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        with contextlib.suppress(Exception):  # if something is wrong with the target, each read reports it
            resolve(spec)

    def read(self, endpoint: Endpoint, sessions: Sequence[str]) -> Reading:
        """What the store, opened by its factory, returns for these sessions."""
        with logged_in(endpoint):
            answer = _answer(self._spec, endpoint, sessions)
        if isinstance(answer, str):
            return dict.fromkeys(sessions, answer)
        for name in answer.imported:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        return answer.read


@dataclass(frozen=True, slots=True)
class _StateRead:
    read: Reading
    imported: tuple[str, ...]
    """Modules that the parent process did not have."""


def _answer(spec: str, endpoint: Endpoint, sessions: Sequence[str]) -> _StateRead | str:
    """The answer of a fork; a text says why there is none."""
    incoming, outgoing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(incoming)
        _read_and_exit(spec, endpoint, sessions, outgoing)
    os.close(outgoing)
    try:
        return _received(incoming)
    finally:
        os.close(incoming)
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                end(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _received(incoming: int) -> _StateRead | str:
    data = b""
    poller = select.poll()
    poller.register(incoming, select.POLLIN)
    while poller.poll(READ_TIMEOUT_S * 1000):
        piece = os.read(incoming, 1 << 20)
        if not piece:
            break
        data += piece
    else:
        return f"the store did not answer within {READ_TIMEOUT_S:g} s"
    if not data:
        return "the store ended the process that read it"
    answer: _StateRead = pickle.loads(data)
    return answer


def _read_and_exit(spec: str, endpoint: Endpoint, sessions: Sequence[str], outgoing: int) -> None:
    """Runs in the fork. It never returns into the parent's stack, and cleans up nothing of the parent's."""
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        before = set(sys.modules)
        read = asyncio.run(_read(spec, endpoint, sessions))
        answer = _StateRead(read, tuple(name for name in list(sys.modules) if name not in before))
        with os.fdopen(outgoing, "wb") as stream:
            pickle.dump(answer, stream)
    finally:
        os._exit(0)


async def _read(spec: str, endpoint: Endpoint, sessions: Sequence[str]) -> Reading:
    target = Target(spec, endpoint)
    try:
        await target.open()
    except Exception as error:
        return dict.fromkeys(sessions, outcomes.describe(error, endpoint.scrubber))
    read: dict[str, pipe.Elements | str] = {}
    try:
        for session in sessions:
            try:
                raw, sequence = await target.read(session, None, None)
                read[session] = returned.elements(raw, sequence)
            except Exception as error:
                read[session] = outcomes.describe(error, endpoint.scrubber)
    finally:
        await target.close()
    return read
