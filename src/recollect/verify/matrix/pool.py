"""A few long-lived cell processes for a caller that wants one cell after another, as a test suite does.

`run` waits for one cell; idle processes may already begin with the next ones. There is no thread: a process works on
its own, and what it said is read during the next call.
"""

from __future__ import annotations

from collections.abc import Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.cell_process import (
    CellProcess,
    Done,
    LookAtTarget,
    Order,
    TargetSeen,
)
from recollect.verify.matrix.results import Result
from recollect.verify.matrix.selection import VerifyRequest

_PoolProcess = CellProcess[Order | LookAtTarget]


class CellPool:
    def __init__(self, processes_max: int) -> None:
        self._processes_max = processes_max
        self._processes: list[_PoolProcess] = []
        self._results: dict[str, Result] = {}
        self._seen: TargetSeen | None = None
        self._path: tuple[str, ...] = ()

    def look(self, request: VerifyRequest, target: str) -> TargetSeen:
        """Opens the target once, in another process."""
        self._seen = None
        look = LookAtTarget(request, target)
        self._renew(request.path)
        while self._seen is None:
            if not any(isinstance(process.task, LookAtTarget) for process in self._processes):
                self._give(look)
            self._listen()
        return self._seen

    def run(self, order: Order, ahead: Sequence[Order] = ()) -> Result:
        """The result of one cell. `ahead` are orders that will be asked for later, next first."""
        self._renew(order.scenario.path)
        while order.folder not in self._results:
            for wanted in (order, *ahead):
                if wanted.folder not in self._results and not self._running(wanted):
                    self._give(wanted)
            self._listen()
        return self._results.pop(order.folder)

    def hand_over(self) -> list[CellProcess[Any]]:
        """Its idle processes, for another owner: what they have imported and started is warm."""
        idle = [process for process in self._processes if process.task is None]
        self._processes = [process for process in self._processes if process not in idle]
        return list(idle)

    def close(self) -> None:
        while self._processes:
            self._processes.pop().end()

    def _running(self, order: Order) -> bool:
        return any(process.task == order for process in self._processes)

    def _renew(self, path: tuple[str, ...]) -> None:
        """Other folders may hold other modules with the same names: start over with processes that imported none."""
        if path != self._path:
            self.close()
            self._path = path

    def _give(self, order: Order | LookAtTarget) -> bool:
        process = next((process for process in self._processes if process.task is None), None)
        if process is None and len(self._processes) < self._processes_max:
            process = CellProcess()
            self._processes.append(process)
        if process is None:
            return False
        process.task = order
        process.send(order)
        return True

    def _listen(self) -> None:
        with DefaultSelector() as selector:
            for process in self._processes:
                selector.register(process.output, EVENT_READ, process)
            ready = [key.data for key, _ in selector.select(1.0)]
        for process in ready:
            self._hear(process)
        for process in [process for process in self._processes if process.overdue]:
            if isinstance(process.task, LookAtTarget):
                self._lost(
                    process,
                    f"it did not open within {process.waited_s:.0f} s: its module or factory hangs, or this machine is "
                    "too busy",
                )
            else:
                self._lost(process, f"the cell took longer than {process.waited_s:.0f} s")

    def _hear(self, process: _PoolProcess) -> None:
        for word in process.words():
            if word is None:
                self._lost(process, "the cell's own process died")
                return
            if isinstance(word, Done) and isinstance(process.task, Order):
                self._results[process.task.folder] = word.result
                process.task = None
            elif isinstance(word, TargetSeen):
                self._seen = word
                process.task = None

    def _lost(self, process: _PoolProcess, why: str) -> None:
        task = process.task
        process.end()
        self._processes.remove(process)
        if isinstance(task, Order):
            verdict = Verdict(status="unknown", reason=why)
            self._results[task.folder] = Result(scenario=task.scenario, verdict=verdict)
        elif isinstance(task, LookAtTarget):
            self._seen = TargetSeen(refusal=f"target {task.target!r}: {why}")
