"""What a run keeps of each client at work, and what it notes beside the history."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.verify.running.workloads import Intent, Outcome, Plan
from recollect.verify.target import pipe
from recollect.verify.target.workers import Client


@dataclass
class Seat:
    """A client at work: its plan, and what it is waiting for."""

    client: Client
    plan: Plan
    writer: bool
    intent: Intent | None = None
    since: float = 0.0
    last_outcome: Outcome | None = None
    last_reply: pipe.Reply | None = None
    steps: int = 0
    ended: bool = False
    doomed: bool = False
    """A fault has told it to die: its death is no news."""


@dataclass
class Notes:
    """What else is worth knowing about a run."""

    hangs: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Targets that would not open again; whether that was right is for the final reads to show."""
    remarks: list[str] = field(default_factory=list)
    """How far a fault got that has many places to strike at."""

    @property
    def in_short(self) -> tuple[str, ...]:
        """The first of each kind."""
        return tuple(kind[0] for kind in (self.hangs, self.deaths, self.refusals, self.remarks) if kind)
