"""Dying on exactly one line of the store's own code: the application, or the engine under it.

The lines are not guessed. A guest client records which lines of the store an append executes; then, for each of them
in turn, another guest appends and dies on that line, or stops on it while the engine is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from recollect.verify.running.faults.fault import Fault, servers_only
from recollect.verify.running.workloads import Body, ReadBack, SaveBack, Write
from recollect.verify.target import pipe

if TYPE_CHECKING:
    from recollect.verify.running.clients import Seat
    from recollect.verify.running.run import Run

SWEEP_S = 1.5
"""Time for a sweep. Its order is random, so that other seeds reach the lines for which this one had no time."""

LINES_MIN = 8
"""Tried however long they take."""

ENGINE_LINES_MAX = 3
"""Of those at which the engine dies: each costs a start of it."""

EVERY_LINE = "every-line"
EVERY_S = 45.0
"""A sweep over every line ends by itself long before this; it bounds the cell."""


def guest_turn(run: Run) -> Write | SaveBack:
    """A turn of two messages where the store takes turns. A whole list is the guests' own: a client that has loaded it
    and not yet saved would overwrite them, and that would be the fault of the kit."""
    bodies = tuple(Body(f"guest {run.rng.random()}") for _ in range(2 if "batches" in run.abilities else 1))
    return SaveBack("guests", bodies) if "whole-list" in run.abilities else Write("session-0", bodies)


def guest_writes(run: Run, guest: Seat) -> pipe.Reply | None:
    """One turn by a guest; a whole list is loaded before it is saved."""
    turn = guest_turn(run)
    if isinstance(turn, SaveBack):
        run.do(guest, ReadBack(turn.session))
    return run.do(guest, turn)


class Line(NamedTuple):
    """A line that an append executes: of a process that has appended before, or only of its first append."""

    name: str
    warm: bool


def recorded_lines(run: Run) -> list[Line]:
    """The lines of the store's own code that an append executes. The first append of a process has lines of its own:
    it opens connections, and knows nothing yet."""
    guest = run.guest()
    first, later = _record(run, guest), _record(run, guest)
    run.dismiss(guest)
    return [Line(name, True) for name in later] + [Line(name, False) for name in first if name not in later]


def _record(run: Run, guest: Seat) -> list[str]:
    run.watch(guest, pipe.Watch("record"))
    reply = guest_writes(run, guest)
    return reply.lines if isinstance(reply, pipe.Lines) else []


def watching(run: Run, watch: pipe.Watch, *, warm: bool = True) -> Seat:
    """A guest whose next append is watched."""
    guest = run.guest()
    if warm:
        guest_writes(run, guest)
    run.watch(guest, watch)
    return guest


def _chosen(run: Run) -> list[Line]:
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


def _sweep(run: Run, least: int, sweep_s: float, die_at: Callable[[Line], bool]) -> None:
    """Tries the lines in turn: at least so many, then as long as there is time; with `every-line`, all of them."""
    lines = _chosen(run)
    if run.scenario.variant == EVERY_LINE:
        least, sweep_s = LINES_MIN, EVERY_S
    end = time.monotonic() + sweep_s
    deaths = 0
    for tried, line in enumerate(lines):
        if tried >= least and time.monotonic() > end:
            break
        deaths += die_at(line)
    run.notes.remarks.append(f"{run.scenario.fault}: died on {deaths} of the {len(lines)} lines of an append")
    if not deaths:
        run.give_up("no append reached the line that it was to die on")


def _kill_app_at_line(run: Run) -> None:
    def die_at(line: Line) -> bool:
        guest = watching(run, pipe.Watch("die", line.name), warm=line.warm)
        guest.doomed = True
        with run.striking("kill-app-at-line", line.name):
            guest_writes(run, guest)
        died = guest.client.number not in run.seats
        if not died:  # this append took another way through the code
            run.dismiss(guest)
        return died

    _sweep(run, LINES_MIN, SWEEP_S, die_at)


def _kill_engine_at_line(run: Run) -> None:
    killed: list[str] = []

    def kill(seat: Seat, at: str) -> None:
        run.kill_engine()
        killed.append(at)
        seat.client.go_on()

    def die_at(line: Line) -> bool:
        guest = watching(run, pipe.Watch("stop", line.name), warm=line.warm)
        before = len(killed)
        with run.striking("kill-engine-at-line", line.name):
            guest_writes(run, guest)
            if len(killed) > before:
                run.start_engine()
        run.dismiss(guest)
        return len(killed) > before

    run.on_line = kill
    _sweep(run, ENGINE_LINES_MAX, 0.0, die_at)
    run.on_line = None


LINE_FAULTS = (
    Fault(
        "kill-app-at-line",
        _kill_app_at_line,
        verifies="whichever line of the store's own code the application dies on, turns are whole and others go on",
        does_not_verify="dying inside a driver or the engine; lines that an append did not execute when recorded;"
        f" without {EVERY_LINE}, lines for which {SWEEP_S:g} s were too short",
        variants=("", EVERY_LINE),
        named_variant="a line of the store's code, such as memory.py:17",
    ),
    Fault(
        "kill-engine-at-line",
        _kill_engine_at_line,
        verifies="the engine dies when the store reaches a line of its own code, such as between two writes of a turn",
        does_not_verify=f"lines beyond {ENGINE_LINES_MAX}, if it is not told {EVERY_LINE} or which one",
        obstacle=servers_only,
        variants=("", EVERY_LINE),
        named_variant="a line of the store's code, such as memory.py:17",
    ),
)
