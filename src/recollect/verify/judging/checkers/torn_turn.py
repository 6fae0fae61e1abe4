"""Some but not all messages of one turn: after recovery, or in any read of an interleaving. Or half a change.

Verifies: acknowledged turns of which a part is missing for good after a disturbance; turns with an unknown outcome of
which only a part is in the last whole read, if that began after the disturbance was over; and, in an interleaving,
where nothing breaks, half a turn in any whole read.
A replace or a retract is torn if a whole read while it is under way has neither the state before it nor the one after.
A turn over several sessions is torn as well if all of it is missing in one of them and it is there in another.
Does not verify: half a turn seen while it is being written, in a run with faults; targets that declare `no_batches`;
turns over several sessions after faults that take single keys or records, and where messages expire or only the latest
are kept.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection, before_fault, subject
from recollect.verify.judging.evidence import CLOCK_FAULTS, DROPPED, IN_WHOLE, NEVER, Disturbance, Evidence
from recollect.verify.judging.losses import losses

NAME = "torn-turn"
TAKES_SINGLE = CLOCK_FAULTS | {"evict", "bit-rot", "lose-shard"}
"""Faults that take keys or records one by one, so a session can lose what another one keeps."""


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    if "no_batches" in evidence.header.traits:
        return []
    torn = _acknowledged(evidence, claimed) + _in_doubt(evidence, claimed) + _halves(evidence, claimed)
    told = {found.events[0] for found in torn}  # half of what a replace brings is half a turn already
    return torn + [found for found in _half_changes(evidence, claimed) if found.events[0] not in told]


def _acknowledged(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    for loss in losses(evidence):
        if loss.disturbance is None or loss.expired or loss.message in claimed:
            continue
        turn, read = evidence.message_turn[loss.message], loss.absence.read
        if not _present(evidence, turn) and not _elsewhere(evidence, turn, loss.disturbance):
            continue
        moment_s = evidence.moment_s(loss.disturbance, loss.absence.since, read)
        events = (evidence.turn_invoked[turn], evidence.read_done[read])
        session = evidence.turn_session[turn]
        found.append(
            Detection(
                loss.message, session, events, disturbance=loss.disturbance, moment_s=moment_s, other=turn
            )
        )
    return found


def _in_doubt(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    for turn in sorted(evidence.unknown):
        messages, session = evidence.turn_messages(turn), evidence.turn_session[turn]
        read = evidence.last_whole_read.get(session, NEVER)
        if read == NEVER or evidence.turn_invoked[turn] < evidence.gone_before[session]:
            continue
        disturbance = _recovered_from(evidence, turn, read)
        if disturbance is None:
            continue
        if not _present(evidence, turn) and not _elsewhere(evidence, turn, disturbance, before=read):
            continue
        events = (evidence.turn_invoked[turn], evidence.read_done[read])
        found += [
            Detection(message, session, events, disturbance=disturbance, other=turn)
            for message in messages
            if not evidence.state[message] & (IN_WHOLE | DROPPED) and message not in claimed
        ]
    return found


def _halves(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    for half in evidence.half_turns:
        messages, session = evidence.turn_messages(half.turn), evidence.turn_session[half.turn]
        if not claimed & set(messages):
            events = (evidence.turn_invoked[half.turn], evidence.read_done[half.read])
            found.append(Detection(messages[0], session, events, other=half.turn, text=str(half.seen)))
    return found


def _half_changes(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    return [
        Detection(
            half.message,
            evidence.session_of(half.message),
            (half.invoked, evidence.read_done[half.read]),
            text=half.operation,
        )
        for half in evidence.half_changes
        if half.message not in claimed
    ]


def _present(evidence: Evidence, turn: int) -> list[int]:
    return [message for message in evidence.turn_messages(turn) if evidence.state[message] & IN_WHOLE]


def _elsewhere(
    evidence: Evidence, turn: int, disturbance: Disturbance, before: int | None = None
) -> list[int]:
    """What the same turn put into other sessions, and a read that began after the recovery still shows.

    With `before`, only what had been seen when that read began: a turn in doubt may take effect between the reads of
    two sessions.
    """
    if (
        disturbance.name in TAKES_SINGLE
        or turn in evidence.retention
        or evidence.header.keeps_last is not None
    ):
        return []
    found = []
    for part in evidence.parts.get(turn, ()):
        read = evidence.last_whole_read.get(evidence.turn_session[part], NEVER)
        if part == turn or read == NEVER or evidence.read_invoked[read] < disturbance.healed:
            continue
        found += [
            message
            for message in _present(evidence, part)
            if before is None or evidence.read_done[evidence.entered[message]] < evidence.read_invoked[before]
        ]
    return found


def _recovered_from(evidence: Evidence, turn: int, read: int) -> Disturbance | None:
    """A disturbance that struck the write and was over when the read began."""
    begun = evidence.read_invoked[read]
    for disturbance in evidence.disturbances:
        if disturbance.healed > evidence.turn_invoked[turn] and disturbance.healed < begun:
            return disturbance
    return None


def describe(evidence: Evidence, detection: Detection) -> str:
    turn = detection.other
    if turn == NEVER:
        return _describe_change(evidence, detection)
    if detection.text:
        return (
            f"Half a turn: the read that ended at event {detection.events[1]} has {detection.text} of the "
            f"{len(evidence.turn_messages(turn))} messages of one turn (event {detection.events[0]}), and no fault was "
            "near."
        )
    total, present = len(evidence.turn_messages(turn)), len(_present(evidence, turn))
    ended = "acknowledged" if evidence.turn_done[turn] != NEVER else "interrupted"
    if not present:
        return _describe_parts(evidence, detection, ended)
    return (
        f"Half a turn: of the {total} messages of one {ended} turn (event {detection.events[0]}) the read that "
        f"ended at event {detection.events[1]} has {present}; {_missing(evidence, detection)}."
    )


def _missing(evidence: Evidence, detection: Detection) -> str:
    who, when = subject(evidence, detection), before_fault(evidence, detection)
    acknowledged = evidence.turn_done[evidence.message_turn[detection.element]] != NEVER
    return f"{who}{when}, is missing" if acknowledged else f"{who} is missing{when}"


def _describe_parts(evidence: Evidence, detection: Detection, ended: str) -> str:
    there = next(part for part in evidence.parts[detection.other] if _present(evidence, part))
    return (
        f"Half a turn: one {ended} turn (event {detection.events[0]}) was over {len(evidence.parts[detection.other])} "
        f'sessions, and is there in "{evidence.sessions[evidence.turn_session[there]]}"; the read that ended at event '
        f'{detection.events[1]} has none of its messages in "{evidence.sessions[detection.session]}": '
        f"{_missing(evidence, detection)}."
    )


def _describe_change(evidence: Evidence, detection: Detection) -> str:
    invoked, ended = detection.events
    half = next(half for half in evidence.half_changes if half.invoked == invoked)
    shown = f"{half.kept} of {half.old} messages that one {half.operation} takes away"
    if half.new:
        shown = f"{half.kept} of {half.old} old and {half.arrived} of {half.new} new messages of one {half.operation}"
    return (
        f"Half a {half.operation}: the read that ended at event {ended} has {shown} (event {invoked}), and no fault "
        "was near."
    )
