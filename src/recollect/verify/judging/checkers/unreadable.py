"""The engine is up, and a read of a session with acknowledged messages raises.

Verifies: reads and searches that ended `fail` while the engine was up and no fault was active; and reads that returned
nothing but damaged items, so that undecodable records hid readable ones.
Does not verify: reads that ended `unknown`, which is no answer at all, nor reads during a fault.

If no later read of the session succeeded, every message that it should have found is counted, else the failed read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from recollect.verify.judging.detection import Detection
from recollect.verify.judging.evidence import NEVER, Evidence

NAME = "unreadable"


def check(evidence: Evidence, claimed: Set[int]) -> list[Detection]:
    found = []
    told: set[int] = set()
    for failed in evidence.failed_reads:
        if failed.session in told:
            continue
        told.add(failed.session)
        for_good = evidence.last_ok_read.get(failed.session, NEVER) < failed.at
        found.append(
            Detection(
                element=-1 - failed.at,
                session=failed.session,
                events=(failed.at,),
                silent=False,
                text=failed.error,
                elements=failed.messages if for_good else 1,
            )
        )
    return found + _hidden_behind_damage(evidence)


def _hidden_behind_damage(evidence: Evidence) -> list[Detection]:
    damaged = Counter(sighting.read for sighting in evidence.damaged)
    found = []
    for read, count in damaged.items():
        if evidence.read_size[read] > count:
            continue
        missing = [absence for absence in evidence.absences if absence.read == read]
        for absence in missing[count:]:
            event = evidence.read_done[read]
            session = evidence.session_of(absence.message)
            found.append(
                Detection(absence.message, session, (event,), silent=False, text="damaged items only")
            )
    return found


def describe(evidence: Evidence, detection: Detection) -> str:
    session = evidence.sessions[detection.session]
    return (
        f'Session "{session}" has acknowledged messages, the engine is up, and reading it fails '
        f"(event {detection.events[0]}): {detection.text}"
    )
