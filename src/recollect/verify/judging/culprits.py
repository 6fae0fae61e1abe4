"""Who took a message that is missing for good although no fault and no expiry explains it.

Another writer is named only with a proof:

- two compare-and-set writes were accepted with the same `expect` (the checker itself looks for that);
- another process saved a whole list that it had read without the message;
- another's write stands where the message stood: before messages that are older than it;
- another's write overlapped this one, and no message of the run vanished without such an overlap. A store that drops
  messages also drops some while nobody else writes; then an overlap alone proves nothing.

Of the rest, messages that left a session from its oldest end while later ones stayed were trimmed. Everything else was
dropped, also where another's write could have done it but nothing proves that it did.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Set
from typing import Literal

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import IN_WHOLE, NEVER, Evidence, Loss
from recollect.verify.judging.losses import losses, shared_sessions, was_seen

Fate = Literal["overwritten", "trimmed", "dropped"]
NEAR = 64
"""How many turns before and after a turn are searched for an overlap: each client has one under way at a time."""


def fates(evidence: Evidence) -> dict[int, tuple[Fate, int]]:
    """What became of each message that nothing else explains, and the turn that went over it, or NEVER."""
    if evidence.fates is None:
        evidence.fates = _decided(evidence)
    return evidence.fates


def with_fate(evidence: Evidence, fate: Fate, claimed: Set[int]) -> list[Detection]:
    """The losses with that fate that no checker has claimed yet, except those that the target disclaims."""
    excused = shared_sessions(evidence) if "single_writer" in evidence.header.traits else set()
    decided = fates(evidence)
    return [
        Detection(
            loss.message,
            evidence.session_of(loss.message),
            (evidence.acknowledged(loss.message), evidence.read_done[loss.absence.read]),
        )
        for loss in losses(evidence)
        if loss.message in decided
        and decided[loss.message][0] == fate
        and loss.message not in claimed
        and evidence.session_of(loss.message) not in excused
    ]


def _decided(evidence: Evidence) -> dict[int, tuple[Fate, int]]:
    by_session: dict[int, list[Loss]] = defaultdict(list)
    for loss in losses(evidence):
        if loss.disturbance is None and not loss.expired:
            by_session[evidence.session_of(loss.message)].append(loss)
    intruders = _intruders(evidence) if by_session else {}
    found: dict[int, tuple[Fate, int]] = {}
    overlapping: list[tuple[Loss, int]] = []
    alone = False
    for session, lost in by_session.items():
        trimmed = _trimmed(evidence, session, lost)
        for loss in lost:
            turn = _saved_over(evidence, loss)
            if turn == NEVER:
                turn = _in_its_place(evidence, loss, intruders.get(session, ()))
            if turn != NEVER:
                found[loss.message] = ("overwritten", turn)
            elif loss.message in trimmed:
                found[loss.message] = ("trimmed", NEVER)
            elif (turn := _overlapping(evidence, loss)) != NEVER:
                overlapping.append((loss, turn))
            else:
                found[loss.message] = ("dropped", NEVER)
                alone = alone or not was_seen(evidence, loss.message)
    for loss, turn in overlapping:
        proven = not alone or was_seen(evidence, loss.message)
        found[loss.message] = ("overwritten", turn) if proven else ("dropped", NEVER)
    return found


def _last_there(evidence: Evidence, loss: Loss) -> int:
    """The beginning of the last read after the acknowledgement that had the message, or of its own write."""
    turn = evidence.message_turn[loss.message]
    is_sight = loss.absence.since > evidence.turn_done[turn]
    return loss.absence.since if is_sight else evidence.turn_invoked[turn]


def _could_take(evidence: Evidence, turn: int, loss: Loss) -> bool:
    """Whether the write certainly happened, and may have happened after the message was last there."""
    after = _last_there(evidence, loss)
    if evidence.turn_done[turn] != NEVER:
        return evidence.turn_done[turn] > after
    seen = [
        evidence.seen_at[message] for message in evidence.turn_messages(turn) if was_seen(evidence, message)
    ]
    if not seen:
        return False
    # The read that first showed the write is not the last that showed the message: if it shows both, the write is over.
    first = min(seen)
    return evidence.read_done[first] > after and evidence.read_invoked[first] != after


def _saved_over(evidence: Evidence, loss: Loss) -> int:
    """A list that another process saved, having read it without this message."""
    if not evidence.bases:
        return NEVER
    mine = evidence.message_turn[loss.message]
    ended = evidence.read_done[loss.absence.read]
    for turn in reversed(evidence.turns_of(evidence.turn_session[mine])):
        base = evidence.bases.get(turn)
        if (
            base is not None
            and _read_before(evidence, base, loss.message)
            and evidence.turn_process[turn] != evidence.turn_process[mine]
            and evidence.turn_invoked[turn] < ended
            and _could_take(evidence, turn, loss)
        ):
            return turn
    return NEVER


def _read_before(evidence: Evidence, base: int, message: int) -> bool:
    """Whether the list that was read at `base` lacks the message: the read ended before the acknowledgement, or before
    the first read that showed it."""
    if base <= evidence.turn_done[evidence.message_turn[message]]:
        return True
    return not was_seen(evidence, message) or evidence.seen_at[message] > bisect_left(
        evidence.read_done, base
    )


def _intruders(evidence: Evidence) -> dict[int, list[int]]:
    """By session, the turns that stand before messages acknowledged before they themselves began."""
    found: dict[int, set[int]] = defaultdict(set)
    for inversion in evidence.inversions.values():
        if not inversion.same_turn:
            turn = evidence.message_turn[inversion.later]
            found[evidence.turn_session[turn]].add(turn)
    return {session: sorted(turns) for session, turns in found.items()}


def _in_its_place(evidence: Evidence, loss: Loss, intruders: list[int] | tuple[int, ...]) -> int:
    mine = evidence.message_turn[loss.message]
    if not was_seen(evidence, loss.message):
        return NEVER
    for turn in intruders:
        if (
            evidence.turn_process[turn] != evidence.turn_process[mine]
            and evidence.turn_invoked[turn] < evidence.read_done[loss.absence.read]
            and _could_take(evidence, turn, loss)
        ):
            return turn
    return NEVER


def _overlapping(evidence: Evidence, loss: Loss) -> int:
    """A turn of another process that was under way while this one was, and after the message was last seen."""
    mine = evidence.message_turn[loss.message]
    acknowledged, session = evidence.turn_done[mine], evidence.turn_session[mine]
    for turn in range(max(0, mine - NEAR), min(len(evidence.turn_first), mine + NEAR + 1)):
        if evidence.turn_session[turn] != session:
            continue
        if (
            evidence.turn_process[turn] != evidence.turn_process[mine]
            and evidence.turn_invoked[turn] < acknowledged
            and _could_take(evidence, turn, loss)
            # If its outcome is unknown, the end of a write does not say when it took effect.
            and (evidence.turn_done[turn] != NEVER or turn > mine)
        ):
            return turn
    return NEVER


def _trimmed(evidence: Evidence, session: int, lost: list[Loss]) -> set[int]:
    """What left from the oldest end, if the session was trimmed: nothing older was in the read that first lacked it,
    and nothing older is there in the end."""
    gone = {loss.message: loss.absence.read for loss in lost}
    if not any(_outlived(evidence, session, loss, gone) for loss in lost):
        return set()
    older = range(_oldest_kept(evidence, session))
    return {loss.message for loss in lost if loss.message in older and not _left_an_older_one(evidence, loss)}


def _left_an_older_one(evidence: Evidence, loss: Loss) -> bool:
    """Whether the read that first lacked the message began with an older one. Of two that were written at the same
    time, what reads show first is the older."""
    oldest, message = loss.absence.oldest, loss.message
    if oldest == NEVER:
        return False
    if was_seen(evidence, message):
        return evidence.rank[oldest] < evidence.rank[message]
    return oldest < message


def _oldest_kept(evidence: Evidence, session: int) -> int:
    """The first acknowledged message that is there in the end; NEVER if none is."""
    for turn in evidence.turns_of(session):
        for message in evidence.turn_messages(turn):
            if evidence.turn_done[turn] != NEVER and evidence.state[message] & IN_WHOLE:
                return message
    return NEVER


def _outlived(evidence: Evidence, session: int, loss: Loss, gone: dict[int, int]) -> bool:
    """Whether a later message, read before this one disappeared, stayed longer."""
    if not was_seen(evidence, loss.message):
        return False
    mine, read = evidence.message_turn[loss.message], loss.absence.read
    for turn in range(mine + 1, min(len(evidence.turn_first), mine + NEAR + 1)):
        if evidence.turn_session[turn] != session:
            continue
        for message in evidence.turn_messages(turn):
            stayed = gone.get(message, read + 1) > read
            if stayed and was_seen(evidence, message) and evidence.seen_at[message] < read:
                return True
    return False
