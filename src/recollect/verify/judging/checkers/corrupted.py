"""A known message whose content, role or metadata differs from what was appended.

Verifies: the checksum of every element that carries a message's number; and items that the store itself
marks as damaged, which stand for messages that are missing from that read.
Does not verify: fields that the store adds itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from recollect.verify.judging.detection import Detection, subject
from recollect.verify.judging.evidence import NEVER, Evidence

NAME = "corrupted"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found: dict[int, Detection] = {}
    for sighting in evidence.altered:
        odd = evidence.odds[sighting.element]
        message = NEVER if odd.message is None else odd.message
        events = (evidence.acknowledged(message), evidence.read_done[sighting.read])
        detection = Detection(
            message, sighting.session, events, silent=not odd.damaged, text=odd.text, exposed=odd.unkept
        )
        if found.setdefault(message, detection).exposed and not odd.unkept:
            found[message] = detection
    for detection in _behind_damaged_items(evidence, claimed):
        found.setdefault(detection.element, detection)
    return [detection for message, detection in found.items() if message not in claimed]


def _behind_damaged_items(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    """A damaged item without a number stands for a message that is missing from the same read."""
    items = Counter((sighting.read, sighting.session) for sighting in evidence.damaged)
    found = []
    for (read, session), count in items.items():
        event = evidence.read_done[read]
        missing = [
            absence.message
            for absence in evidence.absences
            if absence.read == read and absence.message not in claimed
        ]
        for message in missing[:count]:
            events = (evidence.acknowledged(message), event)
            found.append(Detection(message, session, events, silent=False, text="a damaged item"))
        if not missing:
            codes = {s.element for s in evidence.damaged if s.read == read}
            found += [Detection(code, session, (NEVER, event), silent=False) for code in sorted(codes)]
    return found


def describe(evidence: Evidence, detection: Detection) -> str:
    how = "with other content, role or metadata" if detection.silent else "marked as damaged"
    if detection.exposed:
        how = "without what its interface never said it keeps"
    if detection.silent and detection.text:
        what = evidence.contents.get(detection.element)  # which the subject says already
        how += f" ({detection.text.removeprefix(f'{what}: ')})"
    return f"A read (event {detection.events[1]}) returned {subject(evidence, detection)}, {how}."
