"""The owner's side of a process that runs cells (`recollect.verify.matrix.cell`): orders in, events out, one per line.

The process is kept from cell to cell: importing the kit and warming up the fork server takes longer than most cells.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from recollect.secret import from_json, to_pipe
from recollect.verify.host.busy import patient_s
from recollect.verify.matrix.results import Result
from recollect.verify.matrix.selection import VerifyRequest
from recollect.verify.running.scenario import Scenario

CELL_TIMEOUT_S = 90.0
CELL_TIMEOUTS_S = {"patroni": 600.0}
"""Of slower engines: Patroni waits for twenty seconds before it believes that a primary is gone."""
FILLED_PER_S = 100
"""A cell gets one more second for this many messages of `--messages-per-session`, or sessions read at the end."""
LOOK_TIMEOUT_S = 45.0


OLDER_DATA_TIMEOUT_S = 3600.0
"""Older data may be large: it is copied, loaded and read."""


def cell_timeout_s(scenario: Scenario) -> float:
    if scenario.data is not None:
        return OLDER_DATA_TIMEOUT_S
    least_s = CELL_TIMEOUTS_S.get(scenario.engine_kind, CELL_TIMEOUT_S)
    return least_s + scenario.sessions * (1 + scenario.filled) // FILLED_PER_S


class Order(msgspec.Struct, frozen=True, tag="order"):
    """The cell to run, and its folder."""

    scenario: Scenario
    folder: str
    preload: tuple[str, ...] = ()
    """Modules for the fork server to import. It starts once, so these are the modules of all cells that may follow."""
    judge_again: bool = True
    """Whether a violation is judged again in a fresh process before it is reported; False if the run only confirms."""


class LookAtTarget(msgspec.Struct, frozen=True, tag="look"):
    """Open the target once, to see what it can do."""

    request: VerifyRequest
    target: str


class Step(msgspec.Struct, frozen=True, tag="step"):
    name: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    result: Result


class TargetSeen(msgspec.Struct, frozen=True, tag="seen"):
    """What a target can do, or why it cannot be used."""

    abilities: tuple[str, ...] = ()
    refusal: str | None = None
    no_engine: bool = False
    """The engine could not be used; the target may be fine."""
    internal: bool = False
    """An error of ours; the target may be fine."""


Word = Step | Done | TargetSeen

Task = TypeVar("Task")


class CellProcess(Generic[Task]):
    """`task` is what its owner gave it; None while it is idle."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self._process: subprocess.Popen[bytes]
        self._since = 0.0
        self.timeout_s = CELL_TIMEOUT_S
        self._rest = b""
        self.begin()

    def begin(self) -> None:
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "recollect.verify.matrix.cell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is ours to handle
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def output(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def overdue(self) -> bool:
        return self.task is not None and time.monotonic() - self._since > patient_s(self.timeout_s)

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._since

    def send(self, order: Order | LookAtTarget) -> None:
        assert self._process.stdin is not None
        self._since = time.monotonic()
        self.timeout_s = cell_timeout_s(order.scenario) if isinstance(order, Order) else LOOK_TIMEOUT_S
        self._process.stdin.write(msgspec.json.encode(order, enc_hook=to_pipe) + b"\n")
        self._process.stdin.flush()

    def words(self) -> Iterator[Word | None]:
        """What it has said since the last call; ends with None when the process is gone."""
        try:
            chunk = os.read(self.output, 1 << 20)
        except BlockingIOError:
            return
        if not chunk:
            yield None
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line, type=Word, dec_hook=from_json)

    def end(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(0.2 if self.task is None else 0.01)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
