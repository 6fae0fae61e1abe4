"""One pass over a history: events in, evidence out.

Pure and streaming: memory grows with the number of operations (columns), not with the size of the reads. The
pass also validates: an event that no runner could have written raises `HistoryError` with its line.
"""

from __future__ import annotations

from collections.abc import Callable

from recollect.verify.judging import removals
from recollect.verify.judging.context_reads import fractures
from recollect.verify.judging.evidence import (
    CLAIMS,
    CLOCK_FAULTS,
    IN_WHOLE,
    IN_WINDOW,
    NEVER,
    NOT_A_DISTURBANCE,
    BlamedEnd,
    Disturbance,
    Divergence,
    DoubleAccept,
    Evidence,
    FailedRead,
    Fracture,
    Outage,
    Refusal,
    Retention,
)
from recollect.verify.judging.folding_reads import ReadFolder
from recollect.verify.judging.history import AnyHistory, HistoryError
from recollect.verify.judging.op import (
    Acknowledged,
    BadEnd,
    Context,
    Event,
    FaultDetail,
    Found,
    ReadAsked,
    RetractAsked,
    RowsCounted,
    Seen,
    WriteAsked,
    client_of,
)
from recollect.verify.judging.read_deltas import WHOLE, chain_of, count_of, from_runs
from recollect.verify.judging.retention import EngineClock, Life
from recollect.verify.judging.session_state import Purge, SessionEvidence

NOTHING = Seen()
COLUMN_STEP_MIN, COLUMN_STEP_MAX = 16, 4096
"""How many rows a column grows by: little histories are judged by the thousand."""


class _Caller:
    """One process and its open invocation; reused from one operation to the next, because this is the hot path."""

    __slots__ = ("event", "is_open", "life", "session", "turn")

    def __init__(self, event: Event, session: SessionEvidence) -> None:
        self.event, self.session = event, session
        self.is_open = False
        self.turn = NEVER
        self.life: Life | None = None


def collect(history: AnyHistory) -> Evidence:
    """Boil a history down to the evidence that the checkers judge."""
    collector = _Collector(Evidence(history.header))
    for block in history.blocks():
        collector.feed(block)
    collector.finish()
    evidence = collector.evidence
    evidence.truncated = history.truncated or (history.header.ends and not evidence.ended)
    return evidence


class _Collector:
    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.clock = EngineClock()
        self.reads = ReadFolder(evidence, self.clock)
        self.sessions: dict[str, SessionEvidence] = {}
        self.callers: dict[int, _Caller] = {}
        self.active: dict[str, int] = {}  # fault → its index in evidence.disturbances
        self.engine_down = False
        self.alive_s = 0.0  # when the engine was last known to run
        self.healed: Event | None = None  # the healing after which no write has succeeded yet
        self._complete: dict[str, Callable[[_Caller, Event], None]] = {
            "append": self._complete_write,
            "save": self._complete_write,
            "replace": self._complete_replace,
            "retract": self._complete_retract,
            "read": self._complete_read,
            "context": self._complete_context,
            "forget": self._complete_forget,
            "search": self._complete_search,
            "count": self._complete_count,
        }

    def feed(self, events: list[Event]) -> None:
        event = None
        callers, invoke, complete, ok_ops = self.callers, self._invoke, self._complete, 0
        try:
            for event in events:
                kind = event.kind
                if kind == "invoke":
                    invoke(event)
                elif kind == "ok" or kind == "fail" or kind == "unknown":
                    caller = callers.get(event.process)
                    if caller is None or not caller.is_open:
                        raise ValueError(f"process {event.process} completes without an open invocation")
                    caller.is_open = False
                    if kind == "ok":
                        ok_ops += 1
                        self.alive_s = max(self.alive_s, caller.event.time_s)
                    else:
                        self._ended_badly(event, caller.session.number)
                    if caller.session.life is not None:
                        self._age(caller, event)
                    complete[caller.event.operation](caller, event)
                else:
                    self._disturb(event)
        except (KeyError, ValueError, IndexError, AttributeError, OverflowError) as error:
            index = event.index if event is not None else NEVER
            raise HistoryError(index + 2, f"not a possible event: {error}") from error
        self.evidence.ok_ops += ok_ops
        if event is not None:
            self.evidence.events = event.index + 1

    def _ended_badly(self, event: Event, session: int) -> None:
        self.evidence.failed_outcomes += event.kind == "fail"
        if type(event.value) is BadEnd:
            ended = BlamedEnd(event.value.how, session, event.index, event.operation, event.error or "")
            self.evidence.bad_ends.append(ended)
        if event.error:
            self.evidence.errors[event.error] += 1

    def finish(self) -> None:
        evidence = self.evidence
        for caller in self.callers.values():
            if caller.is_open:
                evidence.unknown_outcomes += 1
                if type(caller.event.value) is WriteAsked:
                    evidence.unknown.add(caller.turn)
        evidence.unknown = {turn for turn in evidence.unknown if evidence.turn_done[turn] == NEVER}
        evidence.failed = {turn for turn in evidence.failed if evidence.turn_done[turn] == NEVER}
        evidence.failed -= evidence.unknown
        for at, found in enumerate(evidence.disturbances):
            if found.healed == NEVER:
                evidence.disturbances[at] = found._replace(healed=evidence.events)
        in_doubt = removals.replaces_in_doubt(evidence)
        for session in self.sessions.values():
            if turns := in_doubt.get(session.number):
                self.reads.miss_unreplaced(session, turns)
            self.reads.finish(session)
        _drop_misplaced(self.evidence)

    def _invoke(self, event: Event) -> None:
        process, operation = event.process, event.operation
        session = self.sessions.get(event.session)
        if session is None:
            session = self.sessions[event.session] = SessionEvidence(len(self.sessions))
            self.evidence.sessions.append(event.session)
        caller = self.callers.get(process)
        if caller is None:
            caller = self.callers[process] = _Caller(event, session)
        elif caller.is_open:
            raise ValueError(f"process {process} invokes {operation!r} while an operation of it is open")
        caller.is_open = True
        caller.event = event
        caller.session = session
        if operation == "append" or operation == "save" or operation == "replace":
            caller.turn = self._begin_write(session, event)
        elif operation == "read":
            pass
        elif operation == "retract":
            if type(event.value) is not RetractAsked:
                raise ValueError("a retract names its messages")
            removals.begin(self.evidence, session, from_runs(event.value.messages))
            session.mutations_open += 1
            session.last_mutation = event.index
        elif operation == "forget":
            session.forgets_open += 1
            session.mutations_open += 1
            session.last_mutation = event.index
        elif operation not in self._complete:
            raise ValueError(f"unknown operation {operation!r}")
        caller.life = life = session.life
        if life is not None:
            low_s, high_s = self.clock.bounds(event.time_s, event.time_s)
            life.advance(low_s, high_s, event.index)
            if life.may_renew(operation):
                life.begin(low_s)
            else:
                caller.life = None

    def _begin_write(self, session: SessionEvidence, event: Event) -> int:
        evidence, write = self.evidence, event.value
        if type(write) is not WriteAsked:
            raise ValueError(f"an {event.operation} carries a write, not {type(write).__name__}")
        first, count, messages = write.first, len(write.checksums), len(evidence.message_turn)
        if first == messages:
            turn = len(evidence.turn_first)
            evidence.turn_session.append(session.number)
            evidence.turn_process.append(event.process)
            evidence.turn_first.append(first)
            evidence.turn_invoked.append(event.index)
            evidence.message_turn.extend([turn] * count)
            session.begins(first, count)
            if first + count > len(evidence.state) or turn >= len(evidence.turn_done):
                self._grow(first + count)
            if write.spans is not None:
                _join_parts(evidence, turn, write.spans, event)
            evidence.contents.update(enumerate(write.contents, first))
        else:
            turn = self._retry(session, event, first, count)
        evidence.has_batches |= count > 1
        session.mutations_open += 1
        session.last_mutation = event.index
        if write.retention_s is not None or write.base is not None or write.dropped:
            self._declare(session, turn, write, event.time_s)
        if event.operation == "replace":
            evidence.replaced[turn] = tuple(from_runs(write.dropped))
        return turn

    def _grow(self, messages: int) -> None:
        """Columns with a default double up to thousands of rows: one at a time takes twice as long."""
        evidence, step = self.evidence, min(COLUMN_STEP_MAX, max(COLUMN_STEP_MIN, len(self.evidence.state)))
        count = max(step, messages - len(evidence.state))
        evidence.turn_done.extend([NEVER] * step)
        evidence.turn_done_s.frombytes(bytes(8 * step))
        evidence.turn_claim.extend(bytes(step))
        evidence.state.extend(bytes(count))
        evidence.seen_at.extend([NEVER] * count)
        evidence.entered.extend([NEVER] * count)
        evidence.rank.frombytes(bytes(8 * count))

    def _retry(self, session: SessionEvidence, event: Event, first: int, count: int) -> int:
        evidence = self.evidence
        if not 0 <= first < len(evidence.message_turn):
            raise ValueError(f"message {first} was never numbered; the next is {len(evidence.message_turn)}")
        turn = evidence.message_turn[first]
        if evidence.turn_session[turn] != session.number or evidence.turn_messages(turn) != range(
            first, first + count
        ):
            raise ValueError(f"messages {first}.. repeat a turn of another session or length")
        evidence.retries[turn] = event.index
        evidence.attempts[turn] = evidence.attempts.get(turn, 1) + 1
        return turn

    def _declare(self, session: SessionEvidence, turn: int, write: WriteAsked, invoked_s: float) -> None:
        """The rarer parts of a write: its retention, the read it was built on, what it drops on purpose."""
        evidence, header = self.evidence, self.evidence.header
        if write.retention_s is not None:
            evidence.retention.setdefault(turn, Retention(write.retention_s, invoked_s))
            if session.life is None:
                session.life = Life(write.retention_s, header.refresh, header.clock_bound_s)
        if write.base is not None:
            evidence.bases[turn] = write.base
        removals.begin(evidence, session, from_runs(write.dropped))

    def _age(self, caller: _Caller, event: Event) -> None:
        """Time has passed for a session with a retention, and the completed operation may have renewed its life."""
        low_s, high_s = self.clock.bounds(caller.event.time_s, event.time_s)
        life = caller.session.life
        if life is not None:
            life.advance(low_s, high_s, caller.event.index)
        if caller.life is not None:
            operation = caller.event.operation
            # A retry may find its turn already stored, and then stores and renews nothing.
            surely = operation in ("read", "context")
            if operation in ("append", "save"):
                surely = caller.turn not in self.evidence.retries
            caller.life.end(event.kind, low_s, high_s, event.index, surely=surely)

    def _complete_write(self, caller: _Caller, event: Event) -> None:
        evidence, session, turn, index = self.evidence, caller.session, caller.turn, event.index
        session.mutations_open -= 1
        session.last_mutation = index
        if self.healed is not None and caller.event.index > self.healed.index:
            self._write_after_healing(event)
        if event.kind != "ok":
            self._not_acknowledged(session, turn, event)
            return
        if evidence.turn_done[turn] != NEVER:
            return  # a retry of an acknowledged turn
        evidence.turn_done[turn] = index
        evidence.turn_done_s[turn] = event.time_s
        if type(event.value) is Acknowledged and event.value.durability in CLAIMS:
            evidence.turn_claim[turn] = CLAIMS.index(event.value.durability)
        write = caller.event.value
        assert type(write) is WriteAsked  # checked when it was invoked
        first, count, state = write.first, len(write.checksums), evidence.state
        if not session.live:
            session.acked_from = index
        session.live += count
        evidence.acked += count
        whole, window = session.whole, session.window
        for message in range(first, first + count):
            if not state[message] & IN_WHOLE:
                whole.pending.append(message)
            if window is not None and not state[message] & IN_WINDOW:
                window.pending.append(message)
        if write.expect is not None:
            self._compare(session, turn, write.expect, caller.event.index)

    def _complete_replace(self, caller: _Caller, event: Event) -> None:
        self._complete_write(caller, event)
        evidence, turn = self.evidence, caller.turn
        evidence.replace_ended[turn] = event.index
        removals.ended(evidence, caller.session, evidence.replaced[turn], caller.event, event)

    def _complete_retract(self, caller: _Caller, event: Event) -> None:
        asked = caller.event.value
        assert type(asked) is RetractAsked  # checked when it was invoked
        caller.session.mutations_open -= 1
        caller.session.last_mutation = event.index
        self.evidence.unknown_outcomes += event.kind == "unknown"
        removals.ended(self.evidence, caller.session, from_runs(asked.messages), caller.event, event)

    def _write_after_healing(self, event: Event) -> None:
        assert self.healed is not None
        if event.kind == "ok":
            self.healed = self.evidence.outage = None
        else:
            self.evidence.outage = _outage(self.evidence, self.healed, event)

    def _not_acknowledged(self, session: SessionEvidence, turn: int, ended: Event) -> None:
        """An attempt failed or is in doubt; over several attempts, doubt outweighs failure."""
        evidence = self.evidence
        evidence.said[turn] = _name_of(ended.error)
        if ended.kind == "unknown":
            evidence.unknown_outcomes += 1
            session.unknown_messages += len(evidence.turn_messages(turn))
            evidence.unknown.add(turn)
        else:
            evidence.failed.add(turn)

    def _compare(self, session: SessionEvidence, turn: int, expect: int, invoked: int) -> None:
        earlier = session.expects.get(expect)
        floor = max(session.forget_floor, self.reads.struck)  # a lost tail's sequences may be assigned again
        if earlier is None or self.evidence.turn_invoked[earlier] < floor:
            session.expects[expect] = turn
        elif invoked > session.forget_floor:
            self.evidence.double_accepts.append(DoubleAccept(turn, earlier, expect))

    def _complete_read(self, caller: _Caller, event: Event) -> None:
        if event.kind != "ok":
            self._failed_read(caller, event)
            return
        seen = event.value or NOTHING
        if type(seen) is not Seen:
            raise ValueError(f"a read returns what it saw, not {type(seen).__name__}")
        ask = caller.event.value
        self._fold(caller, event, ask if type(ask) is ReadAsked else None, seen)

    def _fold(self, caller: _Caller, event: Event, ask: ReadAsked | None, seen: Seen) -> None:
        evidence, session, asked = self.evidence, caller.session, caller.event
        read, size = len(evidence.read_done), count_of(seen)
        self.reads.begun_s, self.reads.ended_s = asked.time_s, event.time_s
        evidence.read_process.append(event.process)
        evidence.read_invoked.append(asked.index)
        evidence.read_done.append(event.index)
        evidence.read_size.append(size)
        session.last_ok_read = asked.index
        if ask is None or (ask.after is None and (ask.last is None or size < ask.last)):
            self.reads.fold_whole(session, read, seen, part=_in_part(ask, session))
        else:
            self.reads.fold_window(session, read, seen, ask)

    def _complete_context(self, caller: _Caller, event: Event) -> None:
        if event.kind != "ok":
            self._failed_read(caller, event)
            return
        context = event.value
        if type(context) is not Context:
            raise ValueError(f"a context read returns its statements, not {type(context).__name__}")
        if not context.parts:
            raise ValueError("a context read has at least one statement")
        self.evidence.operations.add("context")
        read = len(self.evidence.read_done)
        first = context.parts[0]
        session, evidence = caller.session, self.evidence
        self._fold(caller, event, first.ask, first.seen)
        whole = chain_of(first.ask, count_of(first.seen)) == WHOLE
        chain = session.whole if whole or session.window is None else session.window
        for part in context.parts[1:]:
            for element in evidence.odds.decode_tail(part.seen):
                if not self._owns(session, element):
                    self.reads.strange(session, read, element)
        for message, has, lacks in fractures(chain.view, context.parts, evidence.odds):
            if self._owns(session, message):
                evidence.fractures.append(Fracture(message, read, has, lacks))

    def _owns(self, session: SessionEvidence, element: int) -> bool:
        known = 0 <= element < len(self.evidence.message_turn)
        return known and self.evidence.session_of(element) == session.number

    def _failed_read(self, caller: _Caller, event: Event) -> None:
        """A read that raised counts against the store only while the engine was up and undisturbed."""
        if event.kind == "unknown":
            self.evidence.unknown_outcomes += 1
            return
        session, index = caller.session, caller.event.index
        last = self.evidence.disturbances[-1] if self.evidence.disturbances else None
        disturbed = self.active or self.engine_down or (last is not None and last.healed > index)
        expired = session.life is not None and session.life.maybe_before > 0
        if disturbed or expired or session.forgets_open or session.forget_unknown:
            return
        if session.acked_from < index and session.live > len(session.missing):
            messages = session.live - len(session.missing)
            failed = FailedRead(session.number, event.index, event.error or "", messages)
            self.evidence.failed_reads.append(failed)

    def _complete_forget(self, caller: _Caller, event: Event) -> None:
        session, evidence = caller.session, self.evidence
        session.forgets_open -= 1
        session.mutations_open -= 1
        session.last_mutation = event.index
        if event.kind == "fail":
            return
        evidence.missing_when_forgotten.update(session.missing)
        if event.kind == "unknown":
            session.forget_unknown = True
            evidence.unknown_outcomes += 1
            evidence.uncertain_forgets += 1
            return
        evidence.operations.add("forget")
        evidence.removers[event.index] = removals.acknowledged(caller.event, event)
        session.forget(Purge(caller.event.index, event.index, len(evidence.message_turn)))

    def _complete_search(self, caller: _Caller, event: Event) -> None:
        value, session, evidence = event.value, caller.session, self.evidence
        if event.kind != "ok":
            self._failed_read(caller, event)
            return
        if session.forgets_open or session.forget_unknown:
            return
        if type(value) is not Found:
            raise ValueError(f"a search returns what it found, not {type(value).__name__}")
        evidence.operations.add("search")
        listed, found = set(from_runs(value.listed)), set(from_runs(value.found))
        for message in sorted(listed ^ found):
            if not 0 <= message < len(evidence.message_turn):
                continue
            acknowledged = evidence.acknowledged(message)
            settled = NEVER < acknowledged < caller.event.index and session.forget_done < caller.event.index
            if settled and evidence.session_of(message) == session.number:
                evidence.divergences.append(Divergence(message, event.index, message in listed))

    def _complete_count(self, caller: _Caller, event: Event) -> None:
        value, session = event.value, caller.session
        if event.kind != "ok":
            return
        if type(value) is not RowsCounted:
            raise ValueError(f"a count returns rows, not {type(value).__name__}")
        self.evidence.operations.add("count")
        if session.missing:
            self.reads.hold_against_count(session, value.rows, caller.event.index, event.index)

    def _disturb(self, event: Event) -> None:
        kind, fault = event.kind, event.operation
        self.evidence.ended |= kind == "run-ended" or kind == "run-stopped"
        if kind == "run-stopped":
            self.evidence.stopped = event.error or "the run was stopped"
        elif kind == "engine-refused":
            self.evidence.refusals.append(Refusal(event.index, event.time_s, event.error or ""))
            self.engine_down = True
        elif kind == "engine-stopped":
            self.engine_down = True
            self.evidence.stops.append((event.index, min(self.alive_s, event.time_s - _told(event).ago_s)))
            if not self.active:
                self._begin_disturbance("engine-stopped", event)
            # What a fault took may only show now: a deleted file can still be read while it is open.
            self.reads.strike(event.index)
        elif kind == "engine-started":
            self.engine_down = False
            self._heal("engine-stopped", event)
        elif kind == "fault-injected":
            self.alive_s = event.time_s
            self.healed = self.evidence.outage = None
            self.evidence.injected.add(fault)
            self.evidence.details.add((fault, _told(event).detail))
            if fault not in NOT_A_DISTURBANCE and fault not in self.active:  # a clock is moved more than once
                self._begin_disturbance(fault, event)
            if fault in CLOCK_FAULTS:
                self._pass_time(event)
                self.clock.inject(fault, _told(event).offset_s, event.time_s)
                self._rewind(event.time_s)
                self._pass_time(event)
        elif kind == "fault-healed":
            self.healed, self.evidence.outage = event, None
            self.evidence.sync_s = max(self.evidence.sync_s, _told(event).sync_s)
            if fault in CLOCK_FAULTS and fault in self.evidence.injected:
                self._pass_time(event)
                self.clock.heal(event.time_s)
                self._rewind(event.time_s)
            self._heal(fault, event)

    def _pass_time(self, event: Event) -> None:
        """The engine may expire sessions by itself while the clock is wrong, without any operation."""
        for session in self.sessions.values():
            if session.life is not None:
                session.life.advance(*self.clock.bounds(event.time_s, event.time_s), event.index)

    def _rewind(self, time_s: float) -> None:
        for session in self.sessions.values():
            if session.life is not None:
                session.life.rewind(self.clock.low(time_s, time_s))

    def _begin_disturbance(self, name: str, event: Event) -> None:
        self.active[name] = len(self.evidence.disturbances)
        self.evidence.disturbances.append(Disturbance(name, event.index, event.time_s, NEVER))
        if name not in CLOCK_FAULTS:
            self.reads.strike(event.index)

    def _heal(self, name: str, event: Event) -> None:
        if (at := self.active.pop(name, None)) is not None:
            found = self.evidence.disturbances[at]
            self.evidence.disturbances[at] = found._replace(healed=event.index)


def _in_part(ask: ReadAsked | None, session: SessionEvidence) -> bool:
    """Whether a read was asked for no more than the session may have had."""
    return ask is not None and ask.last is not None and ask.last <= session.begun


def _drop_misplaced(evidence: Evidence) -> None:
    """Where messages are doubled or out of order, a window may lack one that is merely somewhere else."""
    if not any(absence.floor != NEVER for absence in evidence.absences):
        return
    disordered = {m for found in evidence.inversions.values() for m in (found.message, found.later)}
    disordered |= {m for found in evidence.disagreements for m in (found.message, found.other)}
    disordered |= {found.element for found in evidence.repeated}
    evidence.absences = [
        absence
        for absence in evidence.absences
        if absence.floor == NEVER or not disordered & {absence.message, absence.floor}
    ]


def _join_parts(evidence: Evidence, turn: int, spans: int, event: Event) -> None:
    """The turn is a part of one over several sessions, and its client's, like the other parts."""
    if not 0 <= spans < len(evidence.message_turn):
        raise ValueError(f"a turn begins with message {spans}, which was never numbered")
    evidence.has_batches = True
    evidence.turn_process[turn] = client_of(event.process)
    whole = evidence.parts.setdefault(evidence.message_turn[spans], [])
    whole.append(turn)
    evidence.parts[turn] = whole


def _outage(evidence: Evidence, healed: Event, failed: Event) -> Outage | None:
    """One more write has failed since the healing; one that the store refused as it had declared says nothing."""
    before = evidence.outage
    if _name_of(failed.error) in evidence.header.expected_errors:
        return before
    return Outage(
        healed.operation,
        healed.index,
        failed.index,
        before.since_s if before else healed.time_s,
        failed.time_s,
        before.failed + 1 if before else 1,
        failed.error or "",
    )


def _name_of(error: str | None) -> str:
    return (error or "").partition(":")[0]


def _told(event: Event) -> FaultDetail:
    return event.value if type(event.value) is FaultDetail else FaultDetail()
