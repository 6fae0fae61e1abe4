"""Every session with acknowledged messages reads as empty, without any error.

Verifies: after each disturbance, the first whole read of every session that was read again; with no
disturbance at all, the last whole read of every session. "Empty" means that nothing written before is left:
new messages do not make up for a wiped memory.
Does not verify: sessions that were never read again; an interleaving, which has a message or two, and in which
nothing is wiped (see dropped). Messages that simply expired are no reset, nor is a memory that no read ever showed
anything of (see dropped).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set

from recollect.verify.judging.detection import Detection, before_fault, subject
from recollect.verify.judging.evidence import NEVER, Evidence, FirstRead, Loss
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.judging.losses import losses, was_seen

NAME = "silent-reset"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    by_read: dict[int, list[Loss]] = defaultdict(list)
    found = losses(evidence)
    stored = any(was_seen(evidence, loss.message) for loss in found)
    for loss in found:
        if not loss.expired and (stored or loss.disturbance is not None):
            by_read[loss.absence.read].append(loss)
    if not by_read:
        return []
    reset = {
        loss.message: loss
        for loss in (*_after_disturbances(evidence, by_read), *_in_the_end(evidence, by_read))
    }
    return [
        Detection(
            loss.message,
            evidence.session_of(loss.message),
            (evidence.acknowledged(loss.message), evidence.read_done[loss.absence.read]),
            disturbance=loss.disturbance,
            moment_s=0.0
            if loss.disturbance is None
            else evidence.moment_s(loss.disturbance, loss.absence.since, loss.absence.read),
        )
        for loss in reset.values()
        if loss.message not in claimed
    ]


def _after_disturbances(evidence: Evidence, by_read: dict[int, list[Loss]]) -> Iterator[Loss]:
    """The losses from every disturbance after which no session had anything older."""
    first_reads: dict[int, list[FirstRead]] = defaultdict(list)
    for first in evidence.first_reads:
        first_reads[first.struck].append(first)
    # Not empty: what came back is damaged, or has other content (see corrupted).
    damaged = {sighting.read for sighting in (*evidence.damaged, *evidence.altered)}
    for struck, reads in first_reads.items():
        if not any(first.kept or first.read in damaged for first in reads):
            for first in reads:
                for loss in by_read.get(first.read, ()):
                    if evidence.acknowledged(loss.message) < struck:
                        yield loss


def _in_the_end(evidence: Evidence, by_read: dict[int, list[Loss]]) -> Iterator[Loss]:
    """The losses from empty reads, if in the end every session reads empty and none with messages went unread."""
    if evidence.header.workload == INTERLEAVINGS:
        return
    for session, read in evidence.last_whole_read.items():
        if read != NEVER and evidence.read_size[read]:
            return
        if read == NEVER and any(evidence.turn_done[turn] != NEVER for turn in evidence.turns_of(session)):
            return
    for read, found in by_read.items():
        if not evidence.read_size[read]:
            yield from found


def describe(evidence: Evidence, detection: Detection) -> str:
    ended = detection.events[1]
    sizes = zip(evidence.read_done, evidence.read_size, strict=True)
    empty = not any(size for done, size in sizes if done == ended)
    without = "empty" if empty else "without anything that was there before"
    returned = "nothing" if empty else "only what was written later"
    return (
        f"Every session came back {without} and no error was raised: {subject(evidence, detection)}"
        f"{before_fault(evidence, detection)}, is the first of them; the read that ended at event {ended} began after "
        f"its acknowledgement and returned {returned}."
    )
