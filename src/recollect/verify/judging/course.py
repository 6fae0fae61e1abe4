"""The course of a run: what was done, from when to when, and what became of it. Reports draw it.

The history is streamed as often as the picture needs it, never held in memory. Only the lost messages and the
operations that are open at the moment are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from recollect.verify.judging.gathering import collect
from recollect.verify.judging.history import AnyHistory
from recollect.verify.judging.losses import losses
from recollect.verify.judging.op import Event, WriteAsked

Fate = Literal["kept", "failed", "unknown", "lost", "read", "unread"]

_WRITING = frozenset({"append", "save", "replace", "retract", "forget"})


class Performed(NamedTuple):
    """One operation of a session, from its invocation to its end."""

    session: str
    fate: Fate
    start_s: float
    end_s: float


class Spell(NamedTuple):
    """A fault from its injection to its healing, or a time the engine was down; `over` says whether it ended."""

    name: str
    down: bool
    start_s: float
    end_s: float
    over: bool


class Course:
    """One history. Which messages are missing in the end is worked out up front."""

    def __init__(self, history: AnyHistory) -> None:
        self._history = history
        self._lost = {loss.message for loss in losses(collect(history))}

    def moments(self) -> Iterator[float]:
        """The times of all events, in order."""
        return (event.time_s for event in self._history)

    def __iter__(self) -> Iterator[Performed | Spell]:
        """Everything in the order in which it ended; what is still open when the history ends, ends there."""
        asked: dict[int, Event] = {}
        faults: dict[str, float] = {}
        down_s: float | None = None
        last_s = 0.0
        for event in self._history:
            kind, last_s = event.kind, event.time_s
            if kind == "invoke":
                asked[event.process] = event
            elif kind in ("ok", "fail", "unknown"):
                yield self._performed(asked.pop(event.process), kind, last_s)
            elif kind == "fault-injected":
                faults.setdefault(event.operation, last_s)
            elif kind == "fault-healed" and event.operation in faults:
                yield Spell(event.operation, False, faults.pop(event.operation), last_s, True)
            elif kind == "engine-stopped" and down_s is None:
                down_s = last_s
            elif kind == "engine-started" and down_s is not None:
                yield Spell("engine down", True, down_s, last_s, True)
                down_s = None
        yield from (self._performed(event, "unknown", last_s) for event in asked.values())
        yield from (Spell(name, False, start_s, last_s, False) for name, start_s in faults.items())
        if down_s is not None:
            yield Spell("engine down", True, down_s, last_s, False)

    def _performed(self, asked: Event, outcome: str, end_s: float) -> Performed:
        return Performed(asked.session, self._fate(asked, outcome), asked.time_s, end_s)

    def _fate(self, asked: Event, outcome: str) -> Fate:
        if asked.operation not in _WRITING:
            return "read" if outcome == "ok" else "unread"
        if outcome != "ok":
            return "failed" if outcome == "fail" else "unknown"
        write = asked.value
        if isinstance(write, WriteAsked) and not self._lost.isdisjoint(
            range(write.first, write.first + len(write.checksums))
        ):
            return "lost"
        return "kept"
