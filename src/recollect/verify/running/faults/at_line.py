"""Dying on exactly one line of the store's own code: the application, or the engine under it.

The lines are not guessed. A guest client records which lines of the store an append executes; then, for each of them
in turn, another guest appends and dies on that line, or stops on it while the engine is killed. In the workload
`changes`, the lines of a replace too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from recollect.printable import counted
from recollect.verify.running.clients import Client
from recollect.verify.running.faults.fault import Fault, Injection, servers_only
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.workloads import AppendTurn, Body, ReadBack, ReplaceAll, SaveBack
from recollect.verify.target import pipe

SWEEP_S = 1.5
"""Time for a sweep. Its order is random, so that other seeds reach the lines for which this one had no time."""

LINES_MIN = 8
"""How many lines are tried, however long they take."""

RECORDED_MAX = 10
"""How often an append is recorded if it fails: beside other writers a store may say that somebody else was faster."""

ENGINE_LINES_MAX = 3
"""How many lines to kill the engine at: each one costs an engine start."""

EVERY_LINE = "every-line"
EVERY_S = 45.0
"""A sweep over every line ends by itself long before this; it bounds the cell."""


OnLine = Callable[[str], None]
"""Called with the line at which a guest has stopped."""

GUESTS = "guests"
"""A session that only guests use: a client that had read it before would write over theirs, and that would be the kit's
fault."""


def guest_turn(run: FaultedRun) -> AppendTurn | SaveBack:
    """A turn of two messages, if the store takes turns; in the workload `changes`, one over two sessions, if it takes
    those."""
    abilities, scenario, bodies = run.clients.abilities, run.scenario, _said(run)
    if "whole-list" in abilities:
        return SaveBack(GUESTS, bodies)
    spanning = scenario.workload == "changes" and scenario.sessions > 1 and "append_many" in abilities
    beside = (AppendTurn("session-1", bodies[:1]),) if spanning else ()
    return AppendTurn("session-0", bodies, beside=beside)


def _said(run: FaultedRun) -> tuple[Body, ...]:
    return tuple(
        Body(f"guest {run.rng.random()}") for _ in range(2 if "batches" in run.clients.abilities else 1)
    )


def guest_writes(run: FaultedRun, guest: Client, on_line: OnLine | None = None) -> pipe.Reply | None:
    """One turn by a guest; a whole list is loaded before it is saved. For `on_line` see `FaultedRun.do`."""
    turn = guest_turn(run)
    if isinstance(turn, SaveBack):
        run.do(guest, ReadBack(turn.session))
    return run.do(guest, turn, on_line)


def _guest_replaces(run: FaultedRun, guest: Client, on_line: OnLine | None = None) -> pipe.Reply | None:
    """One replace by a guest, of what guests have left."""
    run.do(guest, ReadBack(GUESTS, positioned=True))
    return run.do(guest, ReplaceAll(GUESTS, _said(run)), on_line)


class Line(NamedTuple):
    """A line that an append or a replace executes: in a process that has done one before, or only in its first one."""

    name: str
    warm: bool
    replaces: bool = False

    def execute(self, run: FaultedRun, guest: Client, on_line: OnLine | None = None) -> None:
        """Does what executes it."""
        write = _guest_replaces if self.replaces else guest_writes
        write(run, guest, on_line)


def recorded_lines(run: FaultedRun) -> list[Line]:
    """The lines of the store's own code that an append executes. The first append of a process executes others too:
    it opens connections, and has nothing cached yet."""
    guest = run.clients.guest()
    first, later = _record(run, guest), _record(run, guest)
    lines = [Line(name, True) for name in later] + [Line(name, False) for name in first if name not in later]
    if run.scenario.workload == "changes" and "replace" in run.clients.abilities:
        run.do(guest, AppendTurn(GUESTS, _said(run)))
        lines += [Line(name, True, replaces=True) for name in _record(run, guest, _guest_replaces)]
    run.clients.dismiss(guest)
    return lines


def _record(
    run: FaultedRun,
    guest: Client,
    write: Callable[[FaultedRun, Client], pipe.Reply | None] = guest_writes,
) -> list[str]:
    for attempt in range(1, RECORDED_MAX + 1):
        _watch(guest, pipe.Watch("record"))
        reply = write(run, guest)
        if isinstance(reply, pipe.Lines):
            return reply.lines
        if not isinstance(reply, pipe.Failed):
            break
        if attempt == RECORDED_MAX:
            run.give_up(f"no append succeeded while its lines were recorded: {reply.error}")
    return []


def watching(run: FaultedRun, watch: pipe.Watch, *, warm: bool = True) -> Client:
    """A guest whose next append is watched."""
    guest = run.clients.guest()
    if warm:
        guest_writes(run, guest)
    _watch(guest, watch)
    return guest


def _watch(guest: Client, watch: pipe.Watch) -> None:
    """Tells a guest to follow the lines of the store's code during its next write."""
    guest.worker.send(watch)
    guest.worker.receive()


def _chosen(run: FaultedRun) -> list[Line]:
    lines, wanted = recorded_lines(run), run.scenario.variant
    if wanted not in ("", EVERY_LINE):
        found = [line for line in lines if line.name == wanted]
        if not found:
            executed = ", ".join(line.name for line in lines) or "no line"
            run.give_up(f"an append does not execute {wanted}; it executes {executed}")
        return found
    if not lines:
        run.give_up("an append executes no line of the files that define the store or its factory")
    run.rng.shuffle(lines)
    return lines


def _sweep(run: FaultedRun, least: int, sweep_s: float, die_at: Callable[[Line], bool]) -> None:
    """Tries the lines in turn: at least `least`, then as many as time allows; with `every-line`, all of them."""
    lines = _chosen(run)
    if run.scenario.variant == EVERY_LINE:
        least, sweep_s = LINES_MIN, EVERY_S
    end = time.monotonic() + sweep_s
    deaths = 0
    for tried, line in enumerate(lines):
        if tried >= least and time.monotonic() > end:
            break
        deaths += die_at(line)
    what = "an append or a replace" if any(line.replaces for line in lines) else "an append"
    run.remark(f"{run.scenario.fault}: died on {deaths} of {counted(len(lines), 'line')} of {what}")
    if not deaths:
        run.give_up("no append reached the line that it was supposed to die on")


class KillAppAtLine(Injection):
    def strike(self) -> None:
        _sweep(self.run, LINES_MIN, SWEEP_S, self._die_at)

    def _die_at(self, line: Line) -> bool:
        guest = watching(self.run, pipe.Watch("die", line.name), warm=line.warm)
        guest.doomed = True
        with self.run.striking("kill-app-at-line", line.name):
            line.execute(self.run, guest)
        survived = self.run.clients.dismiss(guest)  # this append took another way through the code
        return not survived


class KillEngineAtLine(Injection):
    def strike(self) -> None:
        _sweep(self.run, ENGINE_LINES_MAX, 0.0, self._die_at)

    def _die_at(self, line: Line) -> bool:
        guest = watching(self.run, pipe.Watch("stop", line.name), warm=line.warm)
        killed_at: list[str] = []

        def kill(at: str) -> None:
            self.run.kill_engine()
            killed_at.append(at)

        with self.run.striking("kill-engine-at-line", line.name):
            line.execute(self.run, guest, kill)
            if killed_at:
                self.run.start_engine()
        self.run.clients.dismiss(guest)
        return bool(killed_at)


LINE_FAULTS = (
    Fault(
        "kill-app-at-line",
        KillAppAtLine,
        verifies="whichever line of the store's own code the application dies on, turns are whole and others go on",
        does_not_verify="dying inside a driver or the engine; lines that an append did not execute when recorded;"
        f" without {EVERY_LINE}, lines that were not reached within {SWEEP_S:g} s",
        variants=("", EVERY_LINE),
        named_variant="a line of the store's code, such as memory.py:17",
    ),
    Fault(
        "kill-engine-at-line",
        KillEngineAtLine,
        verifies="what was acknowledged survives, and turns are whole, when the engine dies as the store reaches a line"
        " of its own code, such as between two writes of a turn",
        does_not_verify=f"more than {ENGINE_LINES_MAX} lines, unless {EVERY_LINE} or a line is asked for",
        obstacle=servers_only,
        variants=("", EVERY_LINE),
        named_variant="a line of the store's code, such as memory.py:17",
    ),
)
