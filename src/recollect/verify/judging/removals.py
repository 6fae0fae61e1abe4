"""Messages that are removed on purpose, one by one: by a retract, or by a replace that puts others in their place.

Once the removal is invoked nobody expects them; once it is acknowledged nobody may see them. An attempt that failed
removed nothing. One in doubt may have, so what it would have removed is not judged, with one exception: a replace
whose own messages never appeared did not happen, and what it was to replace has to be there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from recollect.verify.judging.evidence import (
    CLAIMS,
    DROPPED,
    IN_WHOLE,
    IN_WINDOW,
    NEVER,
    SEEN,
    Evidence,
    Sighting,
    TakenBack,
)
from recollect.verify.judging.op import Acknowledged, Event
from recollect.verify.judging.read_deltas import View
from recollect.verify.judging.session_state import Chain, SessionEvidence


def own(evidence: Evidence, session: SessionEvidence, messages: Iterable[int]) -> Iterator[int]:
    """Only the session's own: a message that leaked in from another session is not removed there."""
    for message in messages:
        if 0 <= message < len(evidence.message_turn) and evidence.session_of(message) == session.number:
            yield message


def begin(evidence: Evidence, session: SessionEvidence, messages: Iterable[int]) -> None:
    """They may be gone from now on."""
    for message in own(evidence, session, messages):
        evidence.removals[message] = evidence.removals.get(message, 0) + 1
        evidence.state[message] |= DROPPED


def failed(evidence: Evidence, session: SessionEvidence, messages: Iterable[int]) -> None:
    """This attempt removed nothing; if no other attempt may have, they have to be there again."""
    for message in own(evidence, session, messages):
        evidence.removals[message] -= 1
        if evidence.removals[message]:
            continue
        evidence.state[message] &= ~DROPPED
        if evidence.acknowledged(message) != NEVER and not evidence.state[message] & IN_WHOLE:
            session.whole.pending.append(message)


def done(evidence: Evidence, session: SessionEvidence, messages: Iterable[int], how: TakenBack) -> None:
    """They are gone for every read that begins from now on."""
    evidence.removers[how.done] = how
    if session.taken_back is None:
        session.taken_back = set()
    for message in own(evidence, session, messages):
        if message in evidence.taken_back:
            continue
        evidence.taken_back[message] = how
        session.taken_back.add(message)
        session.live -= evidence.acknowledged(message) > session.forget_done


def ended(
    evidence: Evidence, session: SessionEvidence, messages: Iterable[int], asked: Event, event: Event
) -> None:
    """A retract or a replace has completed; one in doubt tells nothing new."""
    if event.kind == "fail":
        failed(evidence, session, messages)
    elif event.kind == "ok":
        done(evidence, session, messages, acknowledged(asked, event))
        evidence.operations.add(asked.operation)


def acknowledged(asked: Event, event: Event) -> TakenBack:
    claim = event.value.durability if type(event.value) is Acknowledged else None
    place = CLAIMS.index(claim) if claim in CLAIMS else 0
    return TakenBack(asked.index, event.index, event.time_s, place)


def find_returned(evidence: Evidence, session: SessionEvidence, chain: Chain, read: int, tail: View) -> None:
    """Finds messages in a read that were removed before it began."""
    assert session.taken_back is not None
    session.taken_back.update(message for message in tail if message in evidence.taken_back)
    begun = evidence.read_invoked[read]
    for message in list(session.taken_back):
        if not evidence.state[message] & (IN_WHOLE | IN_WINDOW):
            session.taken_back.remove(message)
        elif evidence.state[message] & chain.bit:
            taken = evidence.taken_back[message]
            # A write that is retried afterwards may store the message again.
            retried = evidence.retries.get(evidence.message_turn[message], NEVER)
            if begun > taken.done and retried < taken.invoked:
                evidence.resurrected.append((Sighting(message, session.number, read), taken.done))
                session.taken_back.remove(message)


def replaces_in_doubt(evidence: Evidence) -> dict[int, list[int]]:
    """By session, the turns of replaces that were never acknowledged but may have happened."""
    found: dict[int, list[int]] = defaultdict(list)
    for turn in sorted(evidence.replaced.keys() & evidence.unknown):
        found[evidence.turn_session[turn]].append(turn)
    return found


def never_replaced(evidence: Evidence, session: SessionEvidence, turns: Iterable[int]) -> list[int]:
    """Messages that are missing although the only writes that were to remove them, replaces in doubt, never happened.

    Nothing is said where a replace's own messages may be gone for another reason.
    """
    undone: Counter[int] = Counter()
    read = session.shows_everything
    for turn in turns:
        ended = evidence.replace_ended.get(turn, evidence.events)
        if read == NEVER or evidence.read_invoked[read] < ended:
            continue
        if any(evidence.state[message] & (SEEN | DROPPED) for message in evidence.turn_messages(turn)):
            continue
        undone.update(own(evidence, session, evidence.replaced[turn]))
    return [
        message
        for message, times in undone.items()
        if evidence.removals[message] == times
        and evidence.acknowledged(message) != NEVER
        and not evidence.state[message] & IN_WHOLE
    ]
