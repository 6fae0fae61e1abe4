"""Acknowledged messages that are missing for good, each with what may have taken it.

The checkers for lost updates, torn turns, tails, holes, resets and early expiry divide these losses among
themselves; what they must agree on is decided here, once.
"""

from __future__ import annotations

from recollect.verify.judging.evidence import (
    CLOCK_FAULTS,
    DROPPED,
    IN_WHOLE,
    NEVER,
    SEEN,
    Absence,
    Disturbance,
    Evidence,
    Loss,
)
from recollect.verify.judging.op import SAYS_FALSE


def losses(evidence: Evidence) -> list[Loss]:
    """All losses; worked out once per evidence."""
    if evidence.losses is None:
        oldest: dict[int, int] = {}
        absences = [
            absent for absent in evidence.absences if not out_of_window(evidence, absent.message, absent.read)
        ]
        is_late = any(absent.back != NEVER for absent in absences)
        found = [
            _explain(evidence, absent, oldest)
            for absent in absences
            if absent.back == NEVER and not (is_late and _removed(evidence, absent.message))
        ]
        evidence.losses = _not_blamed(evidence, _gone_with_their_session(evidence, found))
    return evidence.losses


def out_of_window(evidence: Evidence, message: int, read: int) -> bool:
    """Whether a message may have fallen out of the target's declared window before a read ended, because as many
    messages as it keeps were, or could have been, written after it. A write that failed and was never seen takes no
    room; one that was sent several times may take it as often."""
    window = evidence.header.keeps_last
    if window is None:
        return False
    mine, ended = evidence.message_turn[message], evidence.read_done[read]
    newer = 0
    for turn in evidence.turns_of(evidence.turn_session[mine]):
        done = evidence.turn_done[turn]
        if turn == mine:
            newer += evidence.turn_messages(turn)[-1] - message
        elif evidence.turn_invoked[turn] < ended and (done == NEVER or done > evidence.turn_invoked[mine]):
            there = evidence.turn_messages(turn)
            if turn not in evidence.failed or any(was_seen(evidence, each) for each in there):
                newer += len(there) * evidence.attempts.get(turn, 1)
        if newer >= window:
            return True
    return False


def _removed(evidence: Evidence, message: int) -> bool:
    """Whether a missing message was removed on purpose before a read could have it again. Where messages come late,
    nobody knows that it was lost."""
    return message in evidence.missing_when_forgotten or bool(evidence.state[message] & DROPPED)


def was_seen(evidence: Evidence, message: int) -> bool:
    """Whether any read ever showed it."""
    return bool(evidence.state[message] & SEEN)


def stored_and_false(evidence: Evidence) -> list[int]:
    """Turns for which the store returned `False`, and that a read shows."""
    return [
        turn
        for turn, said in evidence.said.items()
        if said == SAYS_FALSE
        and evidence.turn_done[turn] == NEVER
        and any(was_seen(evidence, message) for message in evidence.turn_messages(turn))
    ]


def _gone_with_their_session(evidence: Evidence, found: list[Loss]) -> list[Loss]:
    """A message that was being written while a clock was set may be stored before the step and acknowledged after it.
    Where the clock took other messages of its session, it took this one too."""
    taken = {
        (evidence.session_of(loss.message), loss.disturbance.injected)
        for loss in found
        if loss.expired and loss.disturbance is not None
    }
    if not taken:
        return found
    return [
        Loss(loss.message, loss.absence, step, True)
        if loss.disturbance is None
        and (step := _clock_set_meanwhile(evidence, loss.message)) is not None
        and (evidence.session_of(loss.message), step.injected) in taken
        else loss
        for loss in found
    ]


def _clock_set_meanwhile(evidence: Evidence, message: int) -> Disturbance | None:
    acknowledged = evidence.acknowledged(message)
    invoked = evidence.turn_invoked[evidence.message_turn[message]]
    for found in evidence.disturbances:
        if found.name in CLOCK_FAULTS and found.injected < acknowledged and found.healed > invoked:
            return found
    return None


def _not_blamed(evidence: Evidence, found: list[Loss]) -> list[Loss]:
    """A message that no read ever showed is not blamed on a later fault if such messages are lost without one too.

    A fault at the end of a session is still believed: what it took had no time to be read. A fault that seems to have
    taken this message but left a later one, or that struck in a run where no read ever showed a message, took nothing.
    """
    if not any(
        loss.disturbance is None and not loss.expired and not was_seen(evidence, loss.message)
        for loss in found
    ):
        return found
    nothing_ever = not any(state & SEEN for state in evidence.state)
    newest: dict[tuple[int, int], int] = {}
    return [
        Loss(loss.message, loss.absence, None, False)
        if loss.disturbance is not None
        and not was_seen(evidence, loss.message)
        and (nothing_ever or _left_a_later_one(evidence, loss, loss.disturbance, newest))
        else loss
        for loss in found
    ]


def _left_a_later_one(
    evidence: Evidence, loss: Loss, disturbance: Disturbance, newest: dict[tuple[int, int], int]
) -> bool:
    session = evidence.session_of(loss.message)
    key = (session, disturbance.injected)
    if key not in newest:
        struck = evidence.struck(disturbance)
        newest[key] = max(
            (
                evidence.turn_invoked[turn]
                for turn in evidence.turns_of(session)
                if NEVER < evidence.turn_done[turn] < struck
                and any(evidence.state[message] & IN_WHOLE for message in evidence.turn_messages(turn))
            ),
            default=NEVER,
        )
    return newest[key] > evidence.acknowledged(loss.message)


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
    """A fault that struck during the write may have taken the message before it was acknowledged.

    Then nobody needs to have overwritten it. A clock fault takes nothing that is being written.
    """
    invoked = evidence.turn_invoked[evidence.message_turn[message]]
    for found in evidence.disturbances:
        if found.injected < acknowledged and found.healed > invoked and found.name not in CLOCK_FAULTS:
            return found
    return None


def _looks_expired(evidence: Evidence, absence: Absence, oldest: dict[int, int]) -> bool:
    """Whether an undisturbed loss with a declared retention looks like expiry: a whole session, or its oldest first."""
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
    """The first acknowledged turn of which something is left, or a number past the last turn."""
    for turn in evidence.turns_of(session):
        kept = any(evidence.state[message] & IN_WHOLE for message in evidence.turn_messages(turn))
        if kept and evidence.turn_done[turn] != NEVER:
            return turn
    return len(evidence.turn_first)


def shared_sessions(evidence: Evidence) -> set[int]:
    """Sessions with several writers: a target that claims a single writer is not judged on their losses."""
    seen: set[int] = set()
    shared: set[int] = set()
    for session, _ in set(zip(evidence.turn_session, evidence.turn_process, strict=True)):
        (shared if session in seen else seen).add(session)
    return shared


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


def loss_after_s(evidence: Evidence, found: list[Loss]) -> float | None:
    """The longest time from a disturbance to an acknowledgement that it undid: for so long a server went on that did
    not count any more."""
    after = [
        evidence.turn_done_s[evidence.message_turn[loss.message]] - loss.disturbance.injected_s
        for loss in found
        if loss.disturbance is not None and not loss.expired
    ]
    return max((time_s for time_s in after if time_s > 0), default=None)
