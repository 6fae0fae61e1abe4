"""An acknowledged message missing for good although no fault and no expiry explains it: overwritten.

Verifies: messages missing from every read since, with no disturbance between acknowledgement and read, nor one that
struck in the middle of the write; and compare-and-set writes that were both acknowledged although they expected the
same sequence, so that the second cannot have seen the first.
Does not verify: which write did it beyond doubt (the sentence names a candidate); sessions with several
writers, if the target declares `single_writer`.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, name_of, subject
from recollect.verify.judging.evidence import NEVER, Evidence, Loss
from recollect.verify.judging.losses import losses

NAME = "lost-update"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    excused = _shared_sessions(evidence) if "single_writer" in evidence.header.traits else set()
    found = [
        _detection(evidence, loss)
        for loss in losses(evidence)
        if loss.disturbance is None and not loss.expired and loss.message not in claimed
    ]
    for both in evidence.double_accepts:
        message = evidence.turn_first[both.turn]
        if message not in claimed:
            events = (evidence.turn_done[both.turn], evidence.turn_done[both.earlier])
            session = evidence.turn_session[both.turn]
            text = f"expect={both.expect}"
            found.append(Detection(message, session, events, other=both.earlier, text=text))
    return [detection for detection in found if detection.session not in excused]


def _shared_sessions(evidence: Evidence) -> set[int]:
    writers = set(zip(evidence.turn_session, evidence.turn_process, strict=True))
    seen: set[int] = set()
    shared: set[int] = set()
    for session, _ in writers:
        (shared if session in seen else seen).add(session)
    return shared


def _detection(evidence: Evidence, loss: Loss) -> Detection:
    events = (evidence.acknowledged(loss.message), evidence.read_done[loss.absence.read])
    return Detection(loss.message, evidence.session_of(loss.message), events)


def _suspect(evidence: Evidence, detection: Detection) -> int:
    """The last write by another process that can have come after this one and before the read."""
    mine, (acknowledged, ended) = evidence.message_turn[detection.element], detection.events
    for turn in reversed(evidence.turns_of(detection.session)):
        if evidence.bases.get(turn, NEVER) > acknowledged:
            continue  # it wrote back a list that it had read after this message was acknowledged
        overlaps = evidence.turn_done[turn] == NEVER or evidence.turn_done[turn] > evidence.turn_invoked[mine]
        other = evidence.turn_process[turn] != evidence.turn_process[mine]
        if turn != mine and other and evidence.turn_invoked[turn] < ended and overlaps:
            return turn
    return NEVER


def describe(evidence: Evidence, detection: Detection) -> str:
    who = subject(evidence, detection)
    if detection.text:
        rival = name_of(evidence.turn_first[detection.other])
        return (
            f"Compare-and-set let two writers through: {who}, was accepted with {detection.text}, and so was "
            f"{rival} (event {detection.events[1]}); the second writer had not seen the first."
        )
    suspect, turn = "", _suspect(evidence, detection)
    if turn != NEVER:
        process, event = evidence.turn_process[turn], evidence.turn_invoked[turn]
        suspect = f"; process {process} wrote to the session meanwhile (event {event})"
        if turn in evidence.bases:
            suspect += f", from the list it had read at event {evidence.bases[turn]}"
    return (
        f"No fault came between, and yet {who}, is missing from the read that ended at event "
        f"{detection.events[1]} and from every read since{suspect}."
    )
