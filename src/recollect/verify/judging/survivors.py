"""What a disturbance left of a session: the line between a lost tail and a hole.

If a later message was kept, it is a hole, else a lost tail. A kept message counts only if it was acknowledged before
the disturbance took data (`Evidence.struck`): what was written afterwards says nothing about what survived. Later means
that its write began after the missing message was acknowledged, or that reads before the disturbance showed it after
the missing one. In the second case the two writes overlapped, and the engine may have had them in the other order:
PostgreSQL assigns sequence numbers before it commits.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import IN_WHOLE, NEVER, Disturbance, Evidence
from recollect.verify.judging.losses import losses


class _Survivor(NamedTuple):
    """The kept message that was invoked last, and the one that reads showed last."""

    newest: int
    furthest: int


def after_a_disturbance(evidence: Evidence, claimed: Set[int]) -> list[tuple[Detection, bool]]:
    """Every unclaimed loss that a disturbance may explain, and whether it is a hole."""
    survivors: dict[tuple[int, int], _Survivor] = {}
    # Where reads disagree about the order of two messages, either rank may be wrong.
    suspected = {message for each in evidence.disagreements for message in (each.message, each.other)}
    found = []
    for loss in losses(evidence):
        disturbance, message = loss.disturbance, loss.message
        if disturbance is None or loss.expired or message in claimed:
            continue
        session, read = evidence.session_of(message), loss.absence.read
        key = (session, disturbance.injected)
        if key not in survivors:
            survivors[key] = _survivor(evidence, session, disturbance, suspected)
        later = _later(evidence, message, disturbance, survivors[key], suspected)
        events = (evidence.acknowledged(message), evidence.read_done[read])
        moment_s = evidence.moment_s(disturbance, loss.absence.since, read)
        detection = Detection(message, session, events, True, disturbance, moment_s, later)
        found.append((detection, later != NEVER))
    return found


def partly_lost(evidence: Evidence) -> int:
    """How many sessions lost something to a disturbance and kept something else that had been acknowledged before the
    disturbance, or, since eviction takes data for as long as it lasts, before the lost message was written.

    A session that lost all of it is not counted: what was written afterwards is a new beginning.
    """
    first_kept: dict[int, int] = {}
    partly = set()
    for loss in losses(evidence):
        if loss.disturbance is None or loss.expired:
            continue
        session = evidence.session_of(loss.message)
        if session not in first_kept:
            first_kept[session] = _first_kept(evidence, session)
        invoked = evidence.turn_invoked[evidence.message_turn[loss.message]]
        if NEVER < first_kept[session] < max(evidence.struck(loss.disturbance), invoked):
            partly.add(session)
    return len(partly)


def _first_kept(evidence: Evidence, session: int) -> int:
    """The first acknowledgement of a message that is still there, or NEVER."""
    acknowledged = (
        evidence.turn_done[turn]
        for turn in evidence.turns_of(session)
        if evidence.turn_done[turn] != NEVER
        and any(evidence.state[message] & IN_WHOLE for message in evidence.turn_messages(turn))
    )
    return min(acknowledged, default=NEVER)


def _survivor(evidence: Evidence, session: int, disturbance: Disturbance, suspected: Set[int]) -> _Survivor:
    newest = furthest = NEVER
    struck = evidence.struck(disturbance)
    for turn in evidence.turns_of(session):
        if not NEVER < evidence.turn_done[turn] < struck:
            continue
        for message in evidence.turn_messages(turn):
            if not evidence.state[message] & IN_WHOLE:
                continue
            newest = max(newest, message)
            if (
                message not in suspected
                and _seen_before(evidence, message, disturbance)
                and (furthest == NEVER or evidence.rank[message] > evidence.rank[furthest])
            ):
                furthest = message
    return _Survivor(newest, furthest)


def _later(
    evidence: Evidence, message: int, disturbance: Disturbance, survivor: _Survivor, suspected: Set[int]
) -> int:
    """A kept message later than this one, or NEVER. The rank of a suspected message says nothing."""
    newest, furthest = survivor
    if newest != NEVER:
        invoked = evidence.turn_invoked[evidence.message_turn[newest]]
        if evidence.acknowledged(message) < invoked:
            return newest
    if furthest == NEVER or message in suspected or not _seen_before(evidence, message, disturbance):
        return NEVER
    return furthest if evidence.rank[message] < evidence.rank[furthest] else NEVER


def overlapped(evidence: Evidence, hole: Detection) -> bool:
    """Whether the write of the kept message began before the missing one was acknowledged or first read."""
    there, seen = evidence.acknowledged(hole.element), evidence.seen_at[hole.element]
    if seen != NEVER:
        there = min(there, evidence.read_done[seen])
    return evidence.turn_invoked[evidence.message_turn[hole.other]] < there


def _seen_before(evidence: Evidence, message: int, disturbance: Disturbance) -> bool:
    """Whether a whole read had it before the disturbance: only whole reads certainly show two messages together.

    Windows show pieces of a session, and ranks across two pieces are a guess.
    """
    read = evidence.entered[message]
    return read != NEVER and evidence.read_done[read] < evidence.struck(disturbance)
