"""Dying on exactly one line of the store's own code: the application, or the engine under it.

The lines are not guessed. A guest client records which lines of the store an append executes; then, for each of them
in turn, another guest appends and dies on that line, or stops on it while the engine is killed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from recollect.verify import pipe
from recollect.verify.faults.fault import Fault, servers_only
from recollect.verify.workloads import Body, Write

if TYPE_CHECKING:
    from recollect.verify.runner import Run
    from recollect.verify.seats import Seat

SWEEP_S = 1.5
"""Time for a sweep. Its order is random, so that other seeds reach the lines for which this one had no time."""

LINES_MIN = 8
"""Tried however long they take."""

ENGINE_LINES_MAX = 3


def _turn(run: Run) -> Write:
    size = 2 if "batches" in run.abilities else 1
    return Write("session-0", tuple(Body(f"guest {run.rng.random()}") for _ in range(size)))


def recorded_lines(run: Run) -> list[str]:
    """The lines of the store's own code that an append executes, in their order."""
    guest = run.guest()
    run.do(guest, _turn(run))  # the first append of a process opens connections
    run.watch(guest, pipe.Watch("record"))
    reply = run.do(guest, _turn(run))
    run.kill_client(guest.client)
    return reply.lines if isinstance(reply, pipe.Lines) else []


def _chosen(run: Run) -> list[str]:
    lines = recorded_lines(run)
    if run.scenario.variant:
        if run.scenario.variant not in lines:
            run.give_up(
                f"an append does not execute {run.scenario.variant}; it executes {', '.join(lines) or 'no line'}"
            )
        return [run.scenario.variant]
    if not lines:
        run.give_up("an append executes no line of the file that defines the store or its factory")
    run.rng.shuffle(lines)
    return lines


def _kill_app_at_line(run: Run) -> None:
    end = time.monotonic() + SWEEP_S
    deaths = 0
    for place, line in enumerate(_chosen(run)):
        if place >= LINES_MIN and time.monotonic() > end:
            break
        guest = run.guest()
        guest.doomed = True
        run.watch(guest, pipe.Watch("die", line))
        with run.striking("kill-app-at-line", line):
            run.do(guest, _turn(run))
        if guest.client.number in run.seats:  # this append took another way through the code
            run.kill_client(guest.client)
        else:
            deaths += 1
    if not deaths:
        run.give_up("no append reached the line that it was to die on")


def _kill_engine_at_line(run: Run) -> None:
    killed: list[str] = []

    def kill(seat: Seat, at: str) -> None:
        run.kill_engine()
        killed.append(at)
        seat.client.connection.send_bytes(b"go on")

    run.on_line = kill
    for line in _chosen(run)[:ENGINE_LINES_MAX]:
        guest = run.guest()
        before = len(killed)
        run.watch(guest, pipe.Watch("stop", line))
        with run.striking("kill-engine-at-line", line):
            run.do(guest, _turn(run))
            if len(killed) > before:
                run.start_engine()
        if guest.client.number in run.seats:
            run.kill_client(guest.client)
    run.on_line = None
    if not killed:
        run.give_up("no append reached the line that the engine was to die at")


LINE_FAULTS = (
    Fault(
        "kill-app-at-line",
        _kill_app_at_line,
        verifies="whichever line of the store's own code the application dies on, turns are whole and others go on",
        does_not_verify="dying inside a driver or the engine; lines that an append did not execute when recorded",
        named_variant="a line of the store's code, such as memory.py:17",
    ),
    Fault(
        "kill-engine-at-line",
        _kill_engine_at_line,
        verifies="the engine dies when the store reaches a line of its own code, such as between two writes of a turn",
        does_not_verify="lines beyond the few that fit into a cell; name one with --variant file.py:17",
        obstacle=servers_only,
        named_variant="a line of the store's code, such as memory.py:17",
    ),
)
