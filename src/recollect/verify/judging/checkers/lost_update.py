"""Another writer's write provably went over an acknowledged message.

Verifies: messages missing for good without a fault or an expiry, where another process provably overwrote them
(`culprits`); and pairs of compare-and-set writes that were both acknowledged although they expected the same
sequence, so the second cannot have seen the first.
Does not verify: messages that are there in another form or in another session (see corrupted, cross-session-leak);
sessions with several writers, if the target declares `single_writer`.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.culprits import fates
from recollect.verify.judging.detection import Detection, client_named, name_of, subject
from recollect.verify.judging.evidence import NEVER, Evidence, Loss
from recollect.verify.judging.losses import losses, shared_sessions

NAME = "lost-update"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    excused = shared_sessions(evidence) if "single_writer" in evidence.header.traits else set()
    elsewhere = {evidence.odds[sighting.element].message for sighting in evidence.altered}
    elsewhere |= {sighting.element for sighting in evidence.leaks}
    decided = fates(evidence)
    found = [
        _detection(evidence, loss, turn)
        for loss in losses(evidence)
        if loss.message not in claimed and loss.message not in elsewhere
        for fate, turn in [decided.get(loss.message, ("", NEVER))]
        if fate == "overwritten"
    ]
    for both in evidence.double_accepts:
        message = evidence.turn_first[both.turn]
        if message not in claimed:
            events = (evidence.turn_done[both.turn], evidence.turn_done[both.earlier])
            session = evidence.turn_session[both.turn]
            text = f"expect={both.expect}"
            found.append(Detection(message, session, events, other=both.earlier, text=text))
    return [detection for detection in found if detection.session not in excused]


def _detection(evidence: Evidence, loss: Loss, turn: int) -> Detection:
    read = evidence.read_done[loss.absence.read]
    events = (evidence.acknowledged(loss.message), read, evidence.turn_invoked[turn])
    return Detection(loss.message, evidence.session_of(loss.message), events, other=turn)


def describe(evidence: Evidence, detection: Detection) -> str:
    who = subject(evidence, detection)
    if detection.text:
        rival = name_of(evidence.turn_first[detection.other])
        return (
            f"Compare-and-set let two writers through: {who}, was accepted with {detection.text}, and so was "
            f"{rival} (event {detection.events[1]}); the second writer had not seen the first."
        )
    turn = detection.other
    process, event = evidence.turn_process[turn], evidence.turn_invoked[turn]
    over = f"{client_named(evidence, process)} wrote to the session meanwhile (event {event})"
    if turn in evidence.bases:
        over += f", from the list it had read at event {evidence.bases[turn]}"
    return (
        f"There was no fault in between, but {who}, is missing from the read that ended at event "
        f"{detection.events[1]} and from every read since; {over}."
    )
