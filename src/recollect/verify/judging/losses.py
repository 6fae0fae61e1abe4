"""Acknowledged messages that are missing for good, each with what may have taken it.

The checkers for lost updates, torn turns, tails, holes, resets and early expiry divide these losses among
themselves; what they must agree on, is decided here once.
"""

from __future__ import annotations

from recollect.verify.judging.evidence import (
    CLOCK_FAULTS,
    IN_WHOLE,
    NEVER,
    Absence,
    Disturbance,
    Evidence,
    Loss,
)


def losses(evidence: Evidence) -> list[Loss]:
    """All losses; worked out once per evidence."""
    if evidence.losses is None:
        oldest: dict[int, int] = {}
        evidence.losses = [
            _explain(evidence, found, oldest) for found in evidence.absences if found.back == NEVER
        ]
    return evidence.losses


def _explain(evidence: Evidence, absence: Absence, oldest: dict[int, int]) -> Loss:
    acknowledged, ended = evidence.acknowledged(absence.message), evidence.read_done[absence.read]
    if evidence.only_clocks_between(acknowledged, ended):
        disturbance = evidence.disturbance_between(acknowledged, ended)
        return Loss(absence.message, absence, disturbance, True)
    disturbance = (
        evidence.disturbance_between(absence.since, ended)
        or evidence.disturbance_between(acknowledged, ended)
        or _struck_in_the_middle(evidence, absence.message, acknowledged)
    )
    expired = disturbance is None and _looks_expired(evidence, absence, oldest)
    return Loss(absence.message, absence, disturbance, expired)


def _struck_in_the_middle(evidence: Evidence, message: int, acknowledged: int) -> Disturbance | None:
    """A fault that struck during the write may have taken the message before the store said that it has it.

    Nobody needs to have written over it then. A clock takes nothing that is being written.
    """
    invoked = evidence.turn_invoked[evidence.message_turn[message]]
    for found in evidence.disturbances:
        if found.injected < acknowledged and found.healed > invoked and found.name not in CLOCK_FAULTS:
            return found
    return None


def _looks_expired(evidence: Evidence, absence: Absence, oldest: dict[int, int]) -> bool:
    """Undisturbed, with a declared retention: expiry takes a whole session, or its oldest messages first."""
    turn = evidence.message_turn[absence.message]
    if turn not in evidence.retention:
        return False
    if evidence.header.refresh != "message":
        return evidence.read_size[absence.read] == 0
    session = evidence.turn_session[turn]
    if session not in oldest:
        oldest[session] = _oldest_kept(evidence, session)
    return oldest[session] > turn


def _oldest_kept(evidence: Evidence, session: int) -> int:
    """The first acknowledged turn of which something is left, or one beyond all."""
    for turn in evidence.turns_of(session):
        kept = any(evidence.state[message] & IN_WHOLE for message in evidence.turn_messages(turn))
        if kept and evidence.turn_done[turn] != NEVER:
            return turn
    return len(evidence.turn_first)


def loss_window_s(evidence: Evidence, found: list[Loss]) -> float | None:
    """The longest time from an acknowledgement to the disturbance that undid it."""
    windows = [
        max(
            0.0,
            evidence.moment_s(loss.disturbance, loss.absence.since, loss.absence.read)
            - evidence.turn_done_s[evidence.message_turn[loss.message]],
        )
        for loss in found
        if loss.disturbance is not None and not loss.expired
    ]
    return max(windows, default=None)
