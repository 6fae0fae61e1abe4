"""Replaces and retracts that a read shows by half, although no fault was near.

A change is atomic, so a read that overlaps it has either all that it takes away and nothing that it brings, or the
other way round. Whatever else it shows is a state that never was: nothing at all, between the delete and the insert of
a replace; or the old messages beside the new ones.

Only what cannot have another reason is judged: no other change, forget or save of the session was under way or in
doubt, nothing had expired, and nothing disturbed the engine since the messages were acknowledged. Reads after the
change has ended are judged by what is missing or resurrected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from recollect.verify.judging.evidence import NEVER, Evidence, HalfChange
from recollect.verify.judging.history import AnyHistory
from recollect.verify.judging.op import RetractAsked, WriteAsked
from recollect.verify.judging.order_proof import views
from recollect.verify.judging.read_deltas import View, from_runs

REMOVING = ("replace", "retract", "forget", "save")


@dataclass
class _Removal:
    """An attempt to remove messages: those that it takes away, those that it brings, and when it was under way."""

    operation: str
    old: tuple[int, ...]
    new: range
    invoked: int
    ended: int = NEVER
    outcome: str = "unknown"

    def may_touch(self, begun: int, done: int) -> bool:
        """Whether it may have taken effect between the two events."""
        if self.outcome == "fail" or self.invoked > done:
            return False
        return self.outcome != "ok" or self.ended > begun

    def may_take(self, message: int, acknowledged: int, done: int) -> bool:
        """Whether it may have taken the message away by then; a retract takes only what it names."""
        return self.may_touch(acknowledged, done) and (self.operation != "retract" or message in self.old)


def half_changes(history: AnyHistory, evidence: Evidence) -> list[HalfChange]:
    """Each change once, in the first read that has only half of it."""
    if not evidence.removals or evidence.header.keeps_last is not None:
        return []
    changes = _changes(history)
    found: dict[int, HalfChange] = {}
    for read, session, view in views(history, set(changes), is_whole=True):
        for change, others in _overlapping(evidence, changes[session], read):
            if change.invoked not in found and (half := _half(evidence, change, others, read, view)):
                found[change.invoked] = half
    return list(found.values())


def _changes(history: AnyHistory) -> dict[str, list[_Removal]]:
    found: dict[str, list[_Removal]] = defaultdict(list)
    open_by: dict[int, _Removal] = {}
    for event in history:
        if event.operation not in REMOVING:
            continue
        if event.kind == "invoke":
            old: tuple[int, ...] = ()
            new = range(0)
            if type(event.value) is RetractAsked:
                old = tuple(from_runs(event.value.messages))
            elif type(event.value) is WriteAsked:
                first = event.value.first
                old = tuple(from_runs(event.value.dropped))
                new = range(first, first + len(event.value.checksums))
            open_by[event.process] = change = _Removal(event.operation, old, new, event.index)
            found[event.session].append(change)
        elif event.process in open_by:
            change = open_by.pop(event.process)
            change.ended, change.outcome = event.index, event.kind
    return found


def _overlapping(
    evidence: Evidence, changes: list[_Removal], read: int
) -> Iterator[tuple[_Removal, list[_Removal]]]:
    """The change that was under way during the read, if it was the only one; and all others."""
    begun, done = evidence.read_invoked[read], evidence.read_done[read]
    for change in changes:
        is_open = change.invoked < done and (change.ended == NEVER or change.ended > begun)
        if not is_open or change.operation == "save":
            continue
        others = [other for other in changes if other is not change]
        since = min(change.invoked, begun)
        if not any(other.may_touch(since, done) for other in others):
            yield change, others


def _half(
    evidence: Evidence, change: _Removal, others: list[_Removal], read: int, view: View
) -> HalfChange | None:
    if any(element < 0 for element in view):
        return None  # a message that is changed or damaged is not missing
    old = [message for message in change.old if _was_there(evidence, message, others, read)]
    shown = set(view)
    kept, arrived = sum(one in shown for one in old), sum(one in shown for one in change.new)
    is_before, is_after = kept == len(old) and not arrived, not kept and arrived == len(change.new)
    if not old or is_before or is_after:
        return None
    witness = next((one for one in old if one not in shown), old[0])
    return HalfChange(
        *(change.operation, witness, change.invoked, read),
        *(kept, len(old), arrived, len(change.new)),
    )


def _was_there(evidence: Evidence, message: int, others: list[_Removal], read: int) -> bool:
    """Whether nothing but the change can have taken it away, or stored it again, by the end of the read.

    A change may be based on a read that is out of date, and will fail: what it names can be gone already."""
    turn = evidence.message_turn[message]
    acknowledged, done = evidence.turn_done[turn], evidence.read_done[read]
    if not NEVER < acknowledged < evidence.read_invoked[read]:
        return False
    if turn in evidence.retention or turn in evidence.retries:
        return False
    if any(other.may_take(message, acknowledged, done) for other in others):
        return False
    return evidence.disturbance_between(acknowledged, done) is None
