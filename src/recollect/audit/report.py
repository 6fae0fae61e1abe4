"""The result of an audit."""

from __future__ import annotations

from typing import Literal

import msgspec

from recollect import exit_codes
from recollect.audit.finding import AuditFinding
from recollect.doctor import Diagnosis

AuditStatus = Literal["held", "exposed", "violated"]


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
