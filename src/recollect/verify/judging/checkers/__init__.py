"""From a history's evidence to anomalies; one module per name.

Every checker is pure: evidence in, detections out. The order matters, because an element counts once, under the
first name that fits; `find` keeps track of who claimed what. A checker that crashes does not take the others with
it, but the verdict cannot be `held` then.
"""

from __future__ import annotations

from typing import NamedTuple

from recollect.verify.judging.checkers import (
    corrupted,
    cross_session_leak,
    dirty_read,
    does_not_recover,
    dropped,
    duplicate,
    expired_early,
    fractured_read,
    hang,
    hidden,
    hole,
    index_divergence,
    lost_tail,
    lost_update,
    never_expired,
    non_monotonic_read,
    own_write_missing,
    phantom,
    raised,
    refuses_to_start,
    reorder,
    resurrected,
    silent_reset,
    stale_read,
    torn_turn,
    trimmed,
    unreadable,
)
from recollect.verify.judging.detection import Checker, Detection
from recollect.verify.judging.evidence import Evidence

CHECKERS: tuple[Checker, ...] = (
    refuses_to_start,
    unreadable,
    does_not_recover,
    silent_reset,
    lost_update,
    hidden,
    cross_session_leak,
    corrupted,
    phantom,
    dirty_read,
    duplicate,
    trimmed,
    dropped,
    torn_turn,
    lost_tail,
    hole,
    reorder,
    fractured_read,
    stale_read,
    own_write_missing,
    non_monotonic_read,
    resurrected,
    expired_early,
    never_expired,
    index_divergence,
    raised,
    hang,
)
ANOMALIES: tuple[str, ...] = tuple(checker.NAME for checker in CHECKERS)


class Named(NamedTuple):
    """All elements under one name; `sentence` is about the first of them."""

    name: str
    detections: tuple[Detection, ...]
    sentence: str

    @property
    def first(self) -> Detection:
        return self.detections[0]

    @property
    def elements(self) -> int:
        return sum(detection.elements for detection in self.detections)


class Crash(NamedTuple):
    checker: str
    error: str


def find(evidence: Evidence) -> tuple[list[Named], list[Crash]]:
    """Run every checker in order; each element goes to the first that names it."""
    claimed: set[int] = set()
    named: list[Named] = []
    crashes: list[Crash] = []
    for checker in CHECKERS:
        try:
            detections = sorted(checker.check(evidence, claimed), key=_oldest)
            if detections:
                named.append(
                    Named(checker.NAME, tuple(detections), checker.describe(evidence, detections[0]))
                )
                claimed.update(detection.element for detection in detections)
        except Exception as error:  # a broken checker must make the verdict `unknown`, whatever broke it
            crashes.append(Crash(checker.NAME, f"{type(error).__name__}: {error}"))
    return named, crashes


def _oldest(detection: Detection) -> tuple[bool, bool, int]:
    """Messages by number, oldest first; then elements without a number, in the order they were found. What the store
    can do nothing about comes last: the first is what the sentence is about."""
    number = detection.element
    return (detection.exposed, number < 0, abs(number))
