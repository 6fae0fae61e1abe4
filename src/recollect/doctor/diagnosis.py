"""What the doctor says: findings, worst first, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from recollect import exit_codes
from recollect.guarantees import LOSSES, UNPROVOKED_FAULTS, Promise, promise

Level = Literal["loss", "cannot-tell", "note"]
Status = Literal["can-lose", "cannot-tell", "keeps"]

_ORDER: tuple[Level, ...] = ("loss", "cannot-tell", "note")
_EXIT_CODES: dict[Status, int] = {
    "can-lose": exit_codes.VIOLATED,
    "cannot-tell": exit_codes.INCONCLUSIVE,
    "keeps": exit_codes.HELD,
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One way to lose memory, or the reason why it cannot be told."""

    name: str
    level: Level
    sentence: str
    when: tuple[str, ...] = ()
    """Faults after which it is gone."""
    window: str = ""
    """How far back the loss reaches, for people."""
    window_s: float | None = None
    """The same in seconds; None has no bound."""
    setting: str = ""
    """What the engine has now."""
    procedure: tuple[str, ...] = ()
    """Steps, in order, that stop it without losing anything on the way."""
    source: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    """Without credentials."""
    engine: str
    version: str
    policy: str | None
    """The named policy that the settings amount to; None where they cannot be told."""
    settings: dict[str, str]
    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        levels = {finding.level for finding in self.findings}
        if "loss" in levels:
            return "can-lose"
        return "cannot-tell" if "cannot-tell" in levels else "keeps"

    @property
    def exit_code(self) -> int:
        """1 when something acknowledged can be lost, 0 when not, 3 when it cannot be told."""
        return _EXIT_CODES[self.status]


def ordered(findings: Iterable[Finding | None]) -> tuple[Finding, ...]:
    """Losses first, the unbounded ones before the others."""

    def badness(finding: Finding) -> tuple[int, float]:
        return _ORDER.index(finding.level), -(float("inf") if finding.window_s is None else finding.window_s)

    return tuple(sorted((finding for finding in findings if finding is not None), key=badness))


def loss(
    given: Promise,
    *,
    name: str,
    window: str,
    setting: str,
    procedure: tuple[str, ...],
    window_s: float | None,
) -> Finding:
    """A finding in the words of the engine's own promise."""
    return Finding(
        name=name,
        level="loss",
        sentence=f"can lose {given.sentence}",
        when=when(given.engine, given.policy),
        window=window,
        window_s=window_s,
        setting=setting,
        procedure=procedure,
        source=given.source,
    )


def after_promotion(findings: Iterable[Finding | None]) -> tuple[Finding | None, ...]:
    """The findings of a replica: it acknowledges nothing itself, so they only count once it is promoted."""
    return tuple(
        msgspec.structs.replace(finding, level="note", sentence=f"once promoted, it {finding.sentence}")
        if finding is not None and finding.level == "loss"
        else finding
        for finding in findings
    )


def when(engine: str, policy: str) -> tuple[str, ...]:
    """The faults that need nobody's doing, after which the engine's promise allows a loss."""
    return tuple(fault for fault in UNPROVOKED_FAULTS if promise(engine, policy, fault).allows & LOSSES)
