"""What a run says beside its history: why it ended early, and what else is worth knowing."""

from __future__ import annotations

from dataclasses import dataclass, field


class RunStopped(Exception):
    """The run cannot go on; the message is the reason of its `unknown` verdict."""


class RunSkipped(Exception):
    """There is nothing to run; the message is the reason of its `skipped` verdict."""


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
