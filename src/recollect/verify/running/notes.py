"""What a run reports besides its history: why it ended early, and what else is worth knowing."""

from __future__ import annotations

from dataclasses import dataclass, field


class RunStopped(Exception):
    """The run cannot go on; the message is the reason for its `unknown` verdict."""


class RunSkipped(Exception):
    """There is nothing to run; the message is the reason for its `skipped` verdict."""


@dataclass
class Notes:
    """What else is worth knowing about a run."""

    hangs: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """Targets that would not open again; the final reads show whether they were right to refuse."""
    remarks: list[str] = field(default_factory=list)
    """How far a fault with many places to strike at has got."""

    @property
    def in_short(self) -> tuple[str, ...]:
        """The first of each kind."""
        return tuple(kind[0] for kind in (self.hangs, self.deaths, self.refusals, self.remarks) if kind)
