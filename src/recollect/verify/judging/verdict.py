"""The verdict: anomalies, compared with what the engine itself promises.

Types first; `judge` is the only rule. Nothing here looks at an engine: a verdict is a pure function of a
history's evidence, so a saved run can be judged again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import msgspec

from recollect import exit_codes
from recollect.guarantees import SURVIVES_IF, Promise, promise
from recollect.printable import counted
from recollect.verify.judging.checkers import ANOMALIES, Crash, Named, find
from recollect.verify.judging.coverage import coverage
from recollect.verify.judging.detection import Detection, lead_of, name_of
from recollect.verify.judging.evidence import (
    CLAIMS,
    CLOCK_FAULTS,
    IN_WHOLE,
    NEVER,
    NOT_A_DISTURBANCE,
    NOTICED,
    OLDER_DATA,
    UNSAFE_COPY,
    Disturbance,
    Evidence,
    Loss,
    TakenBack,
)
from recollect.verify.judging.losses import loss_after_s, loss_window_s, losses, stored_and_false
from recollect.verify.judging.op import ANSWERS
from recollect.verify.judging.survivors import overlapped, partly_lost

Status = Literal["held", "documented-loss", "exposed", "violated", "unknown", "skipped"]
WORST_FIRST: tuple[Status, ...] = ("violated", "unknown", "exposed", "documented-loss", "held", "skipped")

UNNOTICED = frozenset({"wipe-volume", "policy-change", "downgrade", "restore", "lose-shard"})
"""Faults that put other data under a store. A store without an identity of its own cannot notice."""


SET_BACK = frozenset({"lost-tail", "silent-reset", "hole", "non-monotonic-read", "resurrected"})
"""What a memory looks like after it was set back to an older state."""


SPLIT = frozenset({"isolate-primary", "isolate-sentinels", "two-primaries", "pause"})
"""Faults during which an old primary answers beside the new one: it knows nothing of what the new one is told."""

BEHIND_S = 5.0
"""How far one copy can be behind the other when they are parted. It is milliseconds, and more on a busy machine."""


class WitnessEvents(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first message affected and the events that prove it; numbers are event indices.

    `before_fault_s` is how long before the fault the message had been acknowledged.
    """

    session: str = ""
    message: str = ""
    acknowledged: int | None = None
    acknowledged_s: float | None = None
    fault: str | None = None
    fault_event: int | None = None
    before_fault_s: float | None = None
    events: tuple[int, ...] = ()


class Anomaly(msgspec.Struct, frozen=True):
    """A named violation: how many elements, whether an error reached the caller, and the first of them."""

    name: str
    count: int
    silent: bool
    first: WitnessEvents
    sentence: str
    covered: bool = False
    """Inside the engine's promise, or up to the caller to guard against: not a bug of the store."""

    @property
    def voice(self) -> str:
        return "silent" if self.silent else "loud"

    @property
    def told(self) -> str:
        """The sentence that every report shows."""
        return f"{self.name} × {self.count} ({self.voice}): {self.sentence}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one history; the fields of a `--json` cell that come from the evidence.

    `acked = kept + lost + forgotten + unchecked`; what expired as declared counts as forgotten.
    `loss_window_s` is the time from the acknowledgement of the first lost message to the fault that took it;
    `loss_after_s` that from the fault to the acknowledgement of the last, if any came after it.
    """

    status: Status
    reason: str | None = None
    acked: int = 0
    kept: int = 0
    lost: int = 0
    forgotten: int = 0
    unchecked: int = 0
    partly_lost_sessions: int = 0
    """Sessions that lost a part to a fault: neither all there nor all gone."""
    unknown_outcomes: int = 0
    failed_outcomes: int = 0
    frequent_error: str | None = None
    """The most frequent error, where operations failed or ended unknown."""
    loss_window_s: float | None = None
    loss_after_s: float | None = None
    promise: str = ""
    promise_source: str = ""
    promised_window_s: float | None = None
    anomalies: tuple[Anomaly, ...] = ()
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    truncated: bool = False

    @property
    def broken(self) -> tuple[Anomaly, ...]:
        """The anomalies that no promise covers; if the loss is only larger than promised, all of them."""
        if self.status != "violated":
            return ()
        return tuple(anomaly for anomaly in self.anomalies if not anomaly.covered) or self.anomalies

    @property
    def account(self) -> str:
        """What became of the acknowledged messages, in a few words."""
        if self.lost:
            return f"{self.lost:,} of {self.acked:,} {self.what_befell}"
        if self.unchecked:
            return f"{self.unchecked:,} of {self.acked:,} not read back"
        return f"{self.acked:,} kept"

    @property
    def what_befell(self) -> str:
        """The word for what became of the messages that count as lost: those that came back as others are there."""
        return "changed" if {anomaly.name for anomaly in self.anomalies} == {"corrupted"} else "lost"

    @property
    def reach(self) -> str:
        """How far a loss reaches, as the end of a sentence; nothing if that is not known."""
        if not self.loss_window_s and self.loss_after_s is not None:
            return f", for {self.loss_after_s:.2f} s after the fault"
        return "" if self.loss_window_s is None else f", back to {self.loss_window_s:.2f} s before the fault"


UNDER_STRICT: frozenset[Status] = frozenset({"documented-loss", "exposed"})
"""What `--strict` does not accept."""


def exit_code(statuses: Collection[Status]) -> int:
    """1 if anything is violated, 3 if anything is unknown or nothing was concluded, else 0."""
    found = set(statuses)
    if "violated" in found:
        return exit_codes.VIOLATED
    concluded = found - {"skipped", "unknown"}
    return exit_codes.HELD if concluded and "unknown" not in found else exit_codes.INCONCLUSIVE


def judge(evidence: Evidence) -> Verdict:
    """Run the checkers and compare what they find with the engine's promise."""
    named, crashes = find(evidence)
    header = evidence.header
    given = _promised(header.engine, header.real_policy or header.policy, header.fault, header.variant)
    given = _where_all_is_gone(given, named)
    found = losses(evidence)
    window_s, after_s = loss_window_s(evidence, found), loss_after_s(evidence, found)
    broken = _broken(evidence, named, found, given, window_s)
    doubt = _doubt(evidence, crashes)
    if broken is not None and (young := _too_young(evidence, named, found, given)) is not None:
        broken, doubt = None, young
    bare = None if broken or doubt else _unprotected(evidence, given, named)
    status: Status
    if broken is not None:
        status = "violated"
    elif doubt is not None:
        status = "unknown"
    elif bare is not None:
        status = "exposed"
    else:
        status = "documented-loss" if named else "held"
    covered, not_covered = coverage(evidence, ANOMALIES, {group.name for group in named})
    lost = len(found)
    return Verdict(
        status=status,
        reason=broken or doubt or bare,
        acked=evidence.acked,
        kept=evidence.kept,
        lost=lost,
        forgotten=evidence.acked - evidence.kept - lost - evidence.unchecked,
        unchecked=evidence.unchecked,
        partly_lost_sessions=partly_lost(evidence),
        unknown_outcomes=evidence.unknown_outcomes,
        failed_outcomes=evidence.failed_outcomes,
        frequent_error=next((error for error, _ in evidence.errors.most_common(1)), None),
        loss_window_s=None if window_s is None else round(window_s, 6),
        loss_after_s=None if after_s is None else round(after_s, 6),
        promise=given.sentence,
        promise_source=given.source,
        promised_window_s=given.window_s,
        anomalies=_anomalies(evidence, named, given, window_s),
        covered=covered,
        not_covered=not_covered,
        truncated=evidence.truncated,
    )


def _promised(engine: str, policy: str, fault: str, variant: str | None) -> Promise:
    """The engine's promise; without a fault or a known engine, the promise is that nothing is lost."""
    try:
        return promise(engine, policy, fault, variant)
    except ValueError:
        sentence = "nothing that was acknowledged is lost"
        if fault == OLDER_DATA:
            sentence = "data that an earlier release left can be read, and added to"
        elif fault:
            sentence += f" (no promise is documented for {engine} {policy} under {fault})"
        return Promise(engine, policy, fault, frozenset(), 0.0, sentence, "")


def must_recover(engine: str, policy: str, fault: str, variant: str | None = None) -> bool:
    """Whether writes have to succeed again after the fault. A store that finds other data is right to refuse."""
    return "does-not-recover" not in _promised(engine, policy, fault, variant).allows


def _where_all_is_gone(given: Promise, named: list[Named]) -> Promise:
    """What a store needs to know its data by is lost with everything else. If that is documented, it is right to refuse
    what it finds instead. An eviction puts nothing there instead: it takes one key after the other."""
    is_reset = any(group.name == "silent-reset" for group in named)
    if not is_reset or "silent-reset" not in given.allows or "evict" in given.fault.split("+"):
        return given
    return replace(given, allows=given.allows | {"unreadable", "does-not-recover"})


def _broken(
    evidence: Evidence, named: list[Named], found: list[Loss], given: Promise, window_s: float | None
) -> str | None:
    """Why the promise is broken, or None."""
    for group in named:
        if not _allows(evidence, given, group) and not _is_exposed(evidence, given, group):
            return f"{group.name} is not covered by the engine's promise: {given.sentence}"
    reach_s = given.reach_s(evidence.sync_s)
    if given.allows and window_s is not None and reach_s is not None and window_s > reach_s:
        return f"the loss reaches back {window_s:.3f} s, the promise {reach_s:.3g} s: {given.sentence}"
    turns = {evidence.message_turn[loss.message] for loss in found}
    if given.allows and given.turns_max is not None and len(turns) > given.turns_max:
        return (
            f"{counted(len(turns), 'turn')} lost, and the promise allows {given.turns_max}: {given.sentence}"
        )
    return _false_claim(evidence, found)


def _too_young(evidence: Evidence, named: list[Named], found: list[Loss], given: Promise) -> str | None:
    """Why a loud failure proves nothing, or None.

    Where a promise has a window, everything in it may be lost. In a run younger than the window, that is everything
    the store ever created, including its tables.
    """
    beside = {group.name for group in named if not _allows(evidence, given, group)}
    if (
        not beside
        or not beside <= {"unreadable", "does-not-recover"}
        or _false_claim(evidence, found) is not None
    ):
        return None
    struck_s = next(
        (each.injected_s for each in evidence.disturbances if each.name in given.fault.split("+")), None
    )
    if struck_s is None or not given.allows or not given.window_s or struck_s >= given.window_s:
        return None
    return (
        f"the run was {struck_s:.3f} s old when the fault struck, younger than the promised window of "
        f"{given.window_s:g} s: what the store needs to read at all may be within it"
    )


def _newer_than_the_backup(evidence: Evidence, group: Named) -> bool:
    """Whether everything that a restored backup lacks was acknowledged after the backup had begun."""
    began = next((each.injected for each in evidence.disturbances if each.name == "restore"), None)
    return began is not None and all(
        found.element < 0 or evidence.acknowledged(found.element) > began for found in group.detections
    )


def _is_exposed(evidence: Evidence, given: Promise, group: Named) -> bool:
    """Whether the store did what it says, but its caller is left unprotected."""
    if given.fault == "restore":
        if ("restore", UNSAFE_COPY) in evidence.details:
            return all(_after_the_rot(evidence, given, found) for found in group.detections)
        return group.name in SET_BACK and _newer_than_the_backup(evidence, group)
    if given.unchecked:
        return all(_after_the_rot(evidence, given, found) for found in group.detections)
    if group.name in ("silent-reset", "lost-tail", "hole", "torn-turn", "non-monotonic-read", "resurrected"):
        return given.fault in UNNOTICED and all(
            found.disturbance is not None and found.disturbance.name in UNNOTICED
            for found in group.detections
        )
    if group.name in ("stale-read", "own-write-missing") and given.fault in UNNOTICED:
        return all(_beside_other_data(evidence, given, found) for found in group.detections)
    return all(found.exposed for found in group.detections)


def _beside_other_data(evidence: Evidence, given: Promise, detection: Detection) -> bool:
    """Whether the message was acknowledged after the data was taken away: some processes then still have the old files
    open, while others have begun new ones."""
    struck = next((each.injected for each in evidence.disturbances if each.name == given.fault), None)
    return struck is not None and evidence.acknowledged(detection.element) > struck


def _after_the_rot(evidence: Evidence, given: Promise, detection: Detection) -> bool:
    """Whether it was seen after bits had flipped that none of the engine's checksums cover."""
    struck = next((each.injected for each in evidence.disturbances if each.name == given.fault), None)
    return struck is not None and max(detection.events, default=NEVER) > struck


def _unprotected(evidence: Evidence, given: Promise, named: list[Named]) -> str | None:
    """What the caller of a correct store has to know, or None."""
    for group in named:
        if not _allows(evidence, given, group) and _is_exposed(evidence, given, group):
            if ("restore", UNSAFE_COPY) in evidence.details:
                return "the copy is torn: files were copied while they were in use, which is no backup"
            if given.unchecked:
                return "bits that flipped at rest are not noticed: neither the engine nor the store has a checksum"
            if group.name == "duplicate":
                return "a retry stores twice: the store takes no turn id, so a caller cannot retry safely"
            if group.name == "corrupted":
                return f"the store accepts whole messages and keeps only a part ({group.first.text})"
            return f"{given.fault} is not noticed: the store has no identity, and goes on reading from other data"
    return None


def _false_claim(evidence: Evidence, found: list[Loss]) -> str | None:
    """The store may promise more than the engine: what it acknowledged as on disk has to be there."""
    for loss in found:
        cause = loss.disturbance.name if loss.disturbance is not None else ""
        claim = CLAIMS[evidence.turn_claim[evidence.message_turn[loss.message]]]
        if cause in SURVIVES_IF and CLAIMS.index(claim) >= CLAIMS.index(SURVIVES_IF[cause]):
            return (
                f"{name_of(loss.message)} was acknowledged as {claim}, which survives {cause}, and it is lost"
            )
    return None


def _allows(evidence: Evidence, given: Promise, group: Named) -> bool:
    if given.fault == "bit-rot" and not any(found.silent for found in group.detections):
        return True  # whatever is damaged, the caller is told
    if given.fault == "restore" and group.name in SET_BACK:
        return ("restore", NOTICED) in evidence.details and _newer_than_the_backup(evidence, group)
    if given.told and not all(_after_a_failure(evidence, given, found) for found in group.detections):
        return False
    if group.name == "non-monotonic-read" and given.fault != "replica-lag":
        # Only the fault may take away what a reader saw.
        return group.name in given.allows and all(f.disturbance is not None for f in group.detections)
    if group.name == "silent-reset":
        # The tail may be all there was; the window is still checked.
        return bool(given.allows & {"silent-reset", "lost-tail"})
    if group.name in ("stale-read", "own-write-missing") and "lost-tail" in given.allows:
        if given.fault in SPLIT:
            return all(_read_while_split(evidence, given, found) for found in group.detections)
        # Lost as documented, then written back by somebody who still had the whole list.
        return all(
            _lost_between(evidence, found) and (evidence.bases or _written_back(evidence, found))
            for found in group.detections
        )
    if group.name == "hole" and "lost-tail" in given.allows and "hole" not in given.allows:
        # The tail is in the engine's order, which for overlapping writes may differ from the order that reads show.
        return all(overlapped(evidence, detection) for detection in group.detections)
    if group.name == "resurrected":
        return all(_removal_lost(evidence, given, detection) for detection in group.detections)
    if group.name == "unreadable" and all(
        _tells_a_loss(evidence, given, found) for found in group.detections
    ):
        return True
    return group.name in given.allows


def _tells_a_loss(evidence: Evidence, given: Promise, detection: Detection) -> bool:
    """Whether the read failed with an error by which the store says that something is gone, and the engine may have
    lost it: another read shows that it has, or any key may have been evicted."""
    struck = next((each.injected for each in evidence.disturbances if each.name == given.fault), None)
    if struck is None or detection.events[0] < struck or not given.allows & {"lost-tail", "silent-reset"}:
        return False
    if detection.text.partition(":")[0] not in evidence.header.loss_errors:
        return False
    return given.fault == "evict" or any(
        evidence.session_of(loss.message) == detection.session for loss in losses(evidence)
    )


def _after_a_failure(evidence: Evidence, given: Promise, detection: Detection) -> bool:
    """Whether a write had failed during the fault before the message was acknowledged, or before anything went wrong
    with the whole store: a caller knew that the disk was failing."""
    struck = next((each.injected for each in evidence.disturbances if each.name == given.fault), None)
    if struck is None:
        return False
    known = detection.element >= 0 and evidence.acknowledged(detection.element) != NEVER
    until = evidence.acknowledged(detection.element) if known else max(detection.events, default=NEVER)
    return any(struck < evidence.turn_invoked[turn] < until for turn in (*evidence.failed, *evidence.unknown))


def _removal_lost(evidence: Evidence, given: Promise, detection: Detection) -> bool:
    """Whether the engine may have lost the forget, retract or replace itself, or may show an older state for a while.

    It is an acknowledged write, so it is part of the tail, and its acknowledgement may say that it survives.
    """
    taken, disturbance = evidence.removers[detection.events[0]], detection.disturbance
    if "stale-read" in given.allows and not evidence.state[detection.element] & IN_WHOLE:
        return True
    if disturbance is None or not given.allows & {"lost-tail", "silent-reset"}:
        return False
    survives = SURVIVES_IF.get(disturbance.name)
    if survives is not None and taken.claim >= CLAIMS.index(survives):
        return False
    if "hole" not in given.allows and _kept_after(evidence, taken, disturbance, detection.session):
        return False
    reach_s = given.reach_s(evidence.sync_s)
    return reach_s is None or detection.moment_s - taken.done_s <= reach_s


def _kept_after(evidence: Evidence, taken: TakenBack, disturbance: Disturbance, session: int) -> bool:
    """Whether the session still has a message that was written after the removal and before the engine was disturbed:
    then it was not the tail that was lost."""
    struck = evidence.struck(disturbance)
    return any(
        evidence.turn_session[turn] == session
        and taken.done < evidence.turn_invoked[turn]
        and NEVER < evidence.turn_done[turn] < struck
        and any(evidence.state[message] & IN_WHOLE for message in evidence.turn_messages(turn))
        for turn in range(len(evidence.turn_session))
    )


def _read_while_split(evidence: Evidence, given: Promise, detection: Detection) -> bool:
    """Whether the read that lacks the message was made while two primaries answered, and one of them may not know it:
    what was acknowledged long before they were parted has reached both."""
    read, acknowledged_s = detection.events[1], evidence.turn_done_s[evidence.message_turn[detection.element]]
    return any(
        found.name == given.fault
        and found.injected < read < found.healed
        and found.injected_s - acknowledged_s < BEHIND_S
        for found in evidence.disturbances
    )


def _lost_between(evidence: Evidence, detection: Detection) -> bool:
    """Whether the engine was disturbed between the acknowledgement and the read that lacks the message."""
    acknowledged = evidence.turn_done[evidence.message_turn[detection.element]]
    return evidence.disturbance_between(acknowledged, detection.events[1]) is not None


def _written_back(evidence: Evidence, detection: Detection) -> bool:
    """Whether a store whose writes put back all that they have read was in the middle of one: it had read before the
    engine was disturbed, and it wrote after the read that lacks the message."""
    if "rewrites" not in (evidence.header.abilities or ()):
        return False
    acknowledged, lacking = evidence.acknowledged(detection.element), detection.events[1]
    disturbance = evidence.disturbance_between(acknowledged, lacking)
    assert disturbance is not None
    struck = evidence.stopped_during(disturbance)
    return any(
        session == detection.session
        and evidence.turn_invoked[turn] < struck
        and evidence.turn_done[turn] > lacking
        for turn, session in enumerate(evidence.turn_session)
    )


def _usual_error(evidence: Evidence) -> str:
    (error, _), *_ = *evidence.errors.most_common(1), ("", 0)
    return f"; the most frequent error: {error}" if error else ""


def _few_writes(evidence: Evidence) -> str | None:
    """Why the acknowledged writes say little about the store, or None."""
    if not evidence.acked:
        return "no write was acknowledged" + _usual_error(evidence)
    if (stored := len(stored_and_false(evidence))) > evidence.acked:
        return (
            f"{counted(stored, 'write')} returned False, and reads show what they wrote: False means that it was not "
            "stored, so it would not be missed. Return nothing, or not False, where it was"
        )
    raised, done = _raised(evidence), _acknowledged(evidence)
    if evidence.header.fault in NOT_A_DISTURBANCE - CLOCK_FAULTS and raised > done:
        return f"nothing was broken, and {raised} of {raised + done} writes raised" + _usual_error(evidence)
    return None


def _raised(evidence: Evidence) -> int:
    """How many writes of plain messages ended with an error that the store does not declare as an answer."""
    answers = ANSWERS | set(evidence.header.expected_errors)
    return sum(
        said not in answers
        and evidence.turn_done[turn] == NEVER
        and evidence.turn_first[turn] not in evidence.contents
        for turn, said in evidence.said.items()
    )


def _acknowledged(evidence: Evidence) -> int:
    return sum(evidence.turn_done[turn] != NEVER for turn in range(len(evidence.turn_first)))


_BEFORE_ANYTHING = (
    ". What a store needs before its first call, such as a connection or a table, belongs in the factory, which may be"
    " `async def`"
)


def _doubt(evidence: Evidence, crashes: list[Crash]) -> str | None:
    """Why nothing can be concluded, or None."""
    header = evidence.header
    if crashes:
        return "; ".join(f"the checker {crash.checker} crashed: {crash.error}" for crash in crashes)
    if evidence.stopped and not evidence.refusals:
        return evidence.stopped
    if evidence.truncated:
        return (
            f"the history ends in the middle: it has {counted(evidence.events, 'event')}, and the end of the run is "
            "not among them. Run it again, or find the whole file"
        )
    if evidence.ok_ops < header.ok_ops_min:
        few = f"only {counted(evidence.ok_ops, 'operation')} succeeded, {header.ok_ops_min} are needed"
        return few + _usual_error(evidence) + ("" if evidence.ok_ops else _BEFORE_ANYTHING)
    if (unwritten := _few_writes(evidence)) is not None:
        return unwritten
    if evidence.refusals:
        return None  # the engine's refusal is the conclusion, and nothing could be read after it
    parts = header.fault.split("+") if header.fault else []
    for part in parts:
        if part not in evidence.injected:
            return f"the fault {part} was never injected"
    struck = [evidence.stopped_during(found) for found in evidence.disturbances if found.name in parts]
    answered = max(evidence.last_ok_read.values(), default=-1)
    refused = max((failed.at for failed in evidence.failed_reads), default=-1)
    if struck and max(answered, refused) < struck[0]:
        return f"nothing was read after {header.fault}"
    if evidence.acked == evidence.unchecked and not evidence.failed_reads:
        return "no acknowledged message was read back"
    return None


def _anomalies(
    evidence: Evidence, named: list[Named], given: Promise, window_s: float | None
) -> tuple[Anomaly, ...]:
    """What is covered comes after what is not; a loss that reaches back further than promised is not covered."""
    reach_s = given.reach_s(evidence.sync_s)
    too_far = window_s is not None and reach_s is not None and window_s > reach_s
    found = [
        _anomaly(
            evidence,
            group,
            (not too_far and _allows(evidence, given, group)) or _is_exposed(evidence, given, group),
        )
        for group in named
    ]
    return tuple(sorted(found, key=lambda anomaly: anomaly.covered))


def _anomaly(evidence: Evidence, group: Named, covered: bool) -> Anomaly:
    silent = all(detection.silent for detection in group.detections)
    witness = _witness(evidence, group.first)
    return Anomaly(group.name, group.elements, silent, witness, group.sentence, covered)


def _witness(evidence: Evidence, detection: Detection) -> WitnessEvents:
    acknowledged, acknowledged_s, message = None, None, ""
    if 0 <= detection.element < len(evidence.message_turn):
        message = name_of(detection.element)
        turn = evidence.message_turn[detection.element]
        if evidence.turn_done[turn] >= 0:
            acknowledged, acknowledged_s = evidence.turn_done[turn], evidence.turn_done_s[turn]
    fault = detection.disturbance
    lead_s = lead_of(evidence, detection)
    return WitnessEvents(
        session=evidence.sessions[detection.session] if detection.session >= 0 else "",
        message=message,
        acknowledged=acknowledged,
        acknowledged_s=acknowledged_s,
        fault=fault.name if fault is not None else None,
        fault_event=fault.injected if fault is not None else None,
        before_fault_s=None if lead_s is None else round(lead_s, 6),
        events=tuple(event for event in detection.events if event >= 0),
    )
