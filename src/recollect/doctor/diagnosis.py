"""What the doctor reports: symptoms, worst first, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from recollect import exit_codes
from recollect.errors import EngineUnavailable
from recollect.guarantees import LOSSES, UNPROVOKED_FAULTS, Promise, promise

Level = Literal["loss", "cannot-tell", "note"]
DiagnosisStatus = Literal["can-lose", "cannot-tell", "keeps"]

_ORDER: tuple[Level, ...] = ("loss", "cannot-tell", "note")
_EXIT_CODES: dict[DiagnosisStatus, int] = {
    "can-lose": exit_codes.VIOLATED,
    "cannot-tell": exit_codes.INCONCLUSIVE,
    "keeps": exit_codes.HELD,
}


OTHERS_S = 2.0
"""How long the other servers of a group may take to answer once one of them has."""


class LoginRefused(EngineUnavailable):
    """The engine answers but does not let this user in, which is not the same as no answer."""


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """One way to lose memory, or the reason why that cannot be determined."""

    name: str
    level: Level
    sentence: str
    when: tuple[str, ...] = ()
    """Faults after which it is gone."""
    window: str = ""
    """How far back the loss reaches, in words."""
    window_s: float | None = None
    """The same in seconds; None means no bound."""
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
    """The named policy that the settings amount to; None if they cannot be determined."""
    settings: dict[str, str]
    findings: tuple[Symptom, ...]
    """As the JSON calls them."""

    @property
    def status(self) -> DiagnosisStatus:
        levels = {symptom.level for symptom in self.findings}
        if "loss" in levels:
            return "can-lose"
        return "cannot-tell" if "cannot-tell" in levels else "keeps"

    @property
    def exit_code(self) -> int:
        """1 if something acknowledged can be lost, 0 if not, 3 if that cannot be determined."""
        return _EXIT_CODES[self.status]


def ordered(symptoms: Iterable[Symptom | None]) -> tuple[Symptom, ...]:
    """Losses first, the unbounded ones before the others."""

    def badness(symptom: Symptom) -> tuple[int, float]:
        return _ORDER.index(symptom.level), -(float("inf") if symptom.window_s is None else symptom.window_s)

    return tuple(sorted((symptom for symptom in symptoms if symptom is not None), key=badness))


def loss(
    given: Promise,
    *,
    name: str,
    window: str,
    setting: str,
    procedure: tuple[str, ...],
    window_s: float | None,
) -> Symptom:
    """A symptom, in the words of the engine's own promise."""
    return Symptom(
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


def after_promotion(symptoms: Iterable[Symptom | None]) -> tuple[Symptom | None, ...]:
    """The symptoms of a replica: it acknowledges nothing itself, so they count only once it is promoted."""
    return tuple(
        msgspec.structs.replace(symptom, level="note", sentence=f"once promoted, it {symptom.sentence}")
        if symptom is not None and symptom.level == "loss"
        else symptom
        for symptom in symptoms
    )


def when(engine: str, policy: str) -> tuple[str, ...]:
    """The unprovoked faults after which the engine's promise allows a loss."""
    return tuple(fault for fault in UNPROVOKED_FAULTS if promise(engine, policy, fault).allows & LOSSES)
