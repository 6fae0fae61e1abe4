"""Messages that a read misses and a later read has: late, not lost.

If its writer missed it, it is own-write-missing; if another process did, stale-read.
"""

from __future__ import annotations

from collections.abc import Set

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import NEVER, Evidence
from recollect.verify.judging.losses import out_of_window


def late(evidence: Evidence, claimed: Set[int], *, own: bool) -> list[Detection]:
    """Every unclaimed late message once, with the first reader that missed it: its own writer, or another process.

    The events are the beginning and the end of that read, and the end of the read that has the message again.
    """
    found: dict[int, Detection] = {}
    for absence in evidence.absences:
        message = absence.message
        reader = evidence.read_process[absence.read]
        if absence.back == NEVER or message in claimed or (reader == evidence.writer_of(message)) != own:
            continue
        # A message outside a declared window comes back into it when a fault takes newer ones: that is not late.
        if out_of_window(evidence, message, absence.read):
            continue
        reads = (
            evidence.read_invoked[absence.read],
            evidence.read_done[absence.read],
            evidence.read_done[absence.back],
        )
        session = evidence.session_of(message)
        found.setdefault(message, Detection(message, session, reads, other=reader))
    return list(found.values())
