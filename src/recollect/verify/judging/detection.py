"""What a checker returns: the elements it found, and the sentence that describes them.

A checker is a module with `NAME`, `check` and `describe`. `check` returns one detection per element under its
name; the caller drops elements that an earlier name has claimed. `describe` is called for the first detection
only, so a hundred thousand lost messages cost one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from recollect.verify.judging.evidence import NEVER, OLDER_DATA, Disturbance, Evidence

SEVERAL_CALLERS: Final = "several-callers"
"""The variant in which writers share one process and its store."""


class Detection(NamedTuple):
    """One element under one name. `element` identifies it: a message number, or a code below zero.

    `events` are the indices that prove it, in the order in which `describe` uses them. `other` is a
    second message, process or session, where the sentence needs one.
    """

    element: int
    session: int
    events: tuple[int, ...]
    silent: bool = True
    disturbance: Disturbance | None = None
    moment_s: float = 0.0
    other: int = NEVER
    text: str = ""
    elements: int = 1
    exposed: bool = False
    """The store did what it says; its interface left the caller unprotected."""


class Checker(Protocol):
    @property
    def NAME(self) -> str: ...  # noqa: N802 — a module's constant

    @property
    def check(self) -> Callable[[Evidence, frozenset[int] | set[int]], Sequence[Detection]]: ...

    @property
    def describe(self) -> Callable[[Evidence, Detection], str]: ...


def name_of(message: int) -> str:
    return f"m{message}"


def client_named(evidence: Evidence, process: int) -> str:
    """`process 2`; or `caller 2` where it shares its process and store with others: there, no second process is to
    blame."""
    shares = evidence.header.variant == SEVERAL_CALLERS and process in evidence.turn_process
    return f"{'caller' if shares else 'process'} {process}"


def subject(evidence: Evidence, detection: Detection) -> str:
    """`message m17 of session "s2"`, with its acknowledgement if it had one, and what it is if it is no plain text."""
    session = evidence.sessions[detection.session]
    if detection.element < 0 or detection.element >= len(evidence.message_turn):
        return f'an element in session "{session}"'
    turn = evidence.message_turn[detection.element]
    what = evidence.contents.get(detection.element)
    named = f"{name_of(detection.element)} ({what})" if what else name_of(detection.element)
    text = f'message {named} of session "{session}"'
    if evidence.turn_done[turn] == NEVER:
        return text
    if (place := _place_in_older_data(evidence, turn)) is not None:
        return f"{text}, number {place} of those that --expect lists for it"
    return f"{text}, acknowledged at {evidence.turn_done_s[turn]:.3f} s (event {evidence.turn_done[turn]})"


def _place_in_older_data(evidence: Evidence, turn: int) -> int | None:
    """Its place in its session, if the run found it there: then nobody knows when it was acknowledged."""
    found = next((each.injected for each in evidence.disturbances if each.name == OLDER_DATA), NEVER)
    if evidence.turn_done[turn] > found:
        return None
    session = evidence.turn_session[turn]
    return sum(other == session for other in evidence.turn_session[: turn + 1])


def before_fault(evidence: Evidence, detection: Detection) -> str:
    """`, 0.400 s before power-loss (event 120)`, or nothing if no disturbance is to blame."""
    if detection.disturbance is None or detection.disturbance.name == OLDER_DATA:
        return ""
    fault = f"{detection.disturbance.name} (event {detection.disturbance.injected})"
    lead_s = lead_of(evidence, detection)
    if lead_s is None:
        return f" after {fault}"
    return f" {lead_s:.3f} s before {fault}" if lead_s >= 0 else f" during {fault}"


def lead_of(evidence: Evidence, detection: Detection) -> float | None:
    """How long before the loss the message had been acknowledged."""
    if detection.disturbance is None or not 0 <= detection.element < len(evidence.message_turn):
        return None
    turn = evidence.message_turn[detection.element]
    if evidence.turn_done[turn] == NEVER:
        return None
    return detection.moment_s - evidence.turn_done_s[turn]
