"""The result of an audit."""

from __future__ import annotations

from typing import Literal

import msgspec

from recollect import exit_codes
from recollect.audit.finding import AuditFinding
from recollect.doctor import Diagnosis

AuditStatus = Literal["held", "exposed", "violated"]

HEADLINES: dict[AuditStatus, str] = {
    "held": "✓ everything that was acknowledged is there",
    "exposed": "◌ everything is there, and the engine's settings can lose it",
    "violated": "✗ acknowledged memory is lost or damaged",
}
HEADLINES_WITHOUT_SEQUENCES: dict[AuditStatus, str] = {
    "held": "✓ nothing wrong was found; a message that left no trace cannot be missed",
    "exposed": "◌ nothing wrong was found, and the engine's settings can lose what is there",
    "violated": "✗ memory is incomplete or damaged",
}
"""For other people's stores."""


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    """Without credentials."""
    engine: str
    identity: str | None
    """The store's identity; None if it has lost it."""
    sessions: int
    messages: int
    bytes: int
    elapsed_s: float
    findings: tuple[AuditFinding, ...]
    """At most a hundred of each name; `counts` has them all."""
    counts: dict[str, int]
    settings: Diagnosis | None
    """The doctor's diagnosis of the engine."""
    target: str | None = None
    """The store it was read through; None for our own, which have sequences."""
    target_version: str = ""
    """The distribution of a named target, and its version."""
    shards: dict[str, int] = msgspec.field(default_factory=dict)
    """How many sessions were read at each server, if the memory is spread over several."""

    @property
    def read_by(self) -> str:
        """What was read, and how, in a few words."""
        if self.target is None:
            return f"{self.engine} at {self.address}"
        version = f" ({self.target_version})" if self.target_version else ""
        return f"{self.target}{version} on {self.engine} at {self.address}"

    @property
    def headline(self) -> str:
        return (HEADLINES if self.target is None else HEADLINES_WITHOUT_SEQUENCES)[self.status]

    @property
    def status(self) -> AuditStatus:
        """`exposed`: everything is there, but the engine's settings can lose it."""
        if any(finding.level == "damage" for finding in self.findings):
            return "violated"
        return "exposed" if self.settings is not None and self.settings.status == "can-lose" else "held"

    def exit_code(self, *, strict: bool = False) -> int:
        """As for `verify`: 1 for damage, with `strict` also for settings that can lose something."""
        if self.status == "violated" or (strict and self.status == "exposed"):
            return exit_codes.VIOLATED
        return exit_codes.HELD
