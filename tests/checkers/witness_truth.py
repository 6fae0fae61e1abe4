"""An independent judge of witnesses, by brute force.

It knows nothing of the checkers' evidence: every read is decoded in full and kept, and every claim of a
witness is looked up in plain lists. Slow, and simple enough to be believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from recollect.verify.judging.history import RecordedHistory
from recollect.verify.judging.op import (
    BadEnd,
    Context,
    Event,
    Found,
    OddElement,
    Part,
    ReadAsked,
    RetractAsked,
    RowsCounted,
    Seen,
    WriteAsked,
)
from recollect.verify.judging.read_deltas import from_runs
from recollect.verify.judging.verdict import Anomaly

Item = int | OddElement


@dataclass
class Read:
    session: str
    process: int
    begun: int
    ended: int
    ask: ReadAsked
    items: list[Item]
    statements: list[list[Item]] = field(default_factory=list)


@dataclass
class Facts:
    """A history as lists."""

    events: list[Event]
    reads: dict[int, Read] = field(default_factory=dict)
    write_of: dict[int, WriteAsked] = field(default_factory=dict)
    session_of: dict[int, str] = field(default_factory=dict)
    process_of: dict[int, int] = field(default_factory=dict)
    invoked: dict[int, int] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    outcomes: dict[int, set[str]] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)


def facts_of(history: RecordedHistory) -> Facts:
    facts = Facts(list(history.events))
    views: dict[tuple[str, bool], list[Item]] = {}
    opened: dict[int, Event] = {}
    for event in facts.events:
        if event.kind == "invoke":
            opened[event.process] = event
            if isinstance(event.value, WriteAsked):
                for message in _messages(event.value):
                    facts.write_of.setdefault(message, event.value)
                    facts.session_of.setdefault(message, event.session)
                    facts.process_of.setdefault(message, event.process)
                    facts.invoked.setdefault(message, event.index)
        elif event.process in opened:
            invocation = opened.pop(event.process)
            facts.begun[event.index] = invocation.index
            _complete(facts, views, invocation, event)
    return facts


def _messages(write: WriteAsked) -> range:
    return range(write.first, write.first + len(write.checksums))


def _complete(
    facts: Facts, views: dict[tuple[str, bool], list[Item]], invocation: Event, event: Event
) -> None:
    value = invocation.value
    if isinstance(value, WriteAsked):
        for message in _messages(value):
            facts.outcomes.setdefault(message, set()).add(event.kind)
            if event.kind == "ok":
                facts.acked.setdefault(message, event.index)
    if event.operation not in ("read", "context") or event.kind != "ok":
        return
    ask = value if isinstance(value, ReadAsked) else ReadAsked()
    parts: tuple[Part, ...] = (Part(ask, event.value if isinstance(event.value, Seen) else Seen()),)
    if isinstance(event.value, Context):
        parts = event.value.parts
    statements: list[list[Item]] = []
    for number, part in enumerate(parts):
        size = part.seen.keep + sum(part.seen.tail[1::2])
        whole = part.ask.after is None and (part.ask.last is None or size < part.ask.last)
        previous = views.get((event.session, whole), []) if number == 0 else statements[-1]
        items = previous[part.seen.skip : part.seen.skip + part.seen.keep] + _tail(part.seen)
        if number == 0:
            views[event.session, whole] = items
        statements.append(items)
    facts.reads[event.index] = Read(
        event.session,
        event.process,
        invocation.index,
        event.index,
        parts[0].ask,
        statements[0],
        statements,
    )


def _tail(seen: Seen) -> list[Item]:
    items: list[Item] = []
    for start, count in zip(seen.tail[::2], seen.tail[1::2], strict=True):
        items += [seen.odd[-1 - start]] if start < 0 else list(range(start, start + count))
    return items


def check_witness(history: RecordedHistory, anomaly: Anomaly) -> None:
    """Fail unless the history bears the witness out."""
    facts = facts_of(history)
    witness = anomaly.first
    message = int(witness.message[1:]) if witness.message else None
    if message is not None:
        assert witness.acknowledged == facts.acked.get(message)
        if witness.acknowledged is not None:
            assert witness.acknowledged_s == facts.events[witness.acknowledged].time_s
        if anomaly.name != "cross-session-leak":
            assert witness.session == facts.session_of[message]
    if witness.fault_event is not None:
        fault = facts.events[witness.fault_event]
        assert fault.kind in ("fault-injected", "engine-stopped")
        assert witness.fault == (fault.operation or fault.kind)
    for index in witness.events:
        assert f"event {index}" in anomaly.sentence or f" {index}" in anomaly.sentence
    _RULES[anomaly.name](facts, anomaly, -1 if message is None else message)


def _lost(facts: Facts, anomaly: Anomaly, message: int) -> None:
    ended = anomaly.first.events[1]
    read = facts.reads[ended]
    assert read.session == facts.session_of[message]
    assert read.begun > facts.acked[message]
    assert message not in read.items
    later = [r for r in facts.reads.values() if r.session == read.session and r.ended > ended]
    assert not any(message in r.items for r in later)


def _lost_to_a_fault(facts: Facts, anomaly: Anomaly, message: int) -> None:
    _lost(facts, anomaly, message)
    witness = anomaly.first
    assert witness.fault_event is not None
    assert witness.fault_event < facts.reads[witness.events[1]].ended
    assert witness.before_fault_s is not None
    assert witness.before_fault_s >= 0


def _lost_tail(facts: Facts, anomaly: Anomaly, message: int) -> None:
    _lost_to_a_fault(facts, anomaly, message)
    assert not _kept_later(facts, anomaly, message)


def _hole(facts: Facts, anomaly: Anomaly, message: int) -> None:
    _lost_to_a_fault(facts, anomaly, message)
    assert _kept_later(facts, anomaly, message)


def _kept_later(facts: Facts, anomaly: Anomaly, message: int) -> list[Item]:
    """Messages written after this one was acknowledged, acknowledged before the fault, and still there."""
    fault = anomaly.first.fault_event
    assert fault is not None
    items = facts.reads[anomaly.first.events[1]].items
    return [
        m
        for m in items
        if isinstance(m, int)
        and facts.acked.get(m, fault) < fault
        and facts.invoked[m] > facts.acked[message]
    ]


def _lost_update(facts: Facts, anomaly: Anomaly, message: int) -> None:
    if "Compare-and-set" in anomaly.sentence:
        expect = facts.write_of[message].expect
        rivals = [
            m
            for m, write in facts.write_of.items()
            if write.expect == expect and m != message and m in facts.acked
        ]
        assert expect is not None
        assert rivals
        return
    _gone_undisturbed(facts, anomaly, message)
    mine, done = facts.write_of[message], facts.acked[message]
    assert facts.events[anomaly.first.events[2]].kind == "invoke", (
        "the witness names the write that went over it"
    )
    rivals = [m for m, write in facts.write_of.items() if write is not mine and facts.invoked[m] < done]
    assert any(facts.acked.get(m, done) > facts.invoked[message] for m in rivals)


def _gone_undisturbed(facts: Facts, anomaly: Anomaly, message: int) -> None:
    _lost(facts, anomaly, message)
    between = facts.events[facts.acked[message] : anomaly.first.events[1]]
    assert not any(e.kind == "fault-injected" and e.operation != "concurrent-writers" for e in between)


def _trimmed(facts: Facts, anomaly: Anomaly, message: int) -> None:
    _gone_undisturbed(facts, anomaly, message)
    read = facts.reads[anomaly.first.events[1]]
    assert read.items
    assert all(facts.invoked[item] > facts.acked[message] for item in read.items if isinstance(item, int))


def _silent_reset(facts: Facts, anomaly: Anomaly, message: int) -> None:
    _lost(facts, anomaly, message)
    ended = anomaly.first.events[1]
    fault = anomaly.first.fault_event
    for item in facts.reads[ended].items:
        assert isinstance(item, int)
        assert fault is not None
        assert facts.invoked[item] > fault


def _torn(facts: Facts, anomaly: Anomaly, message: int) -> None:
    ended = anomaly.first.events[1]
    items = facts.reads[ended].items
    turn = _messages(facts.write_of[message])
    assert message not in items
    assert any(m in items for m in turn)
    assert anomaly.first.fault_event is not None


def _stale(facts: Facts, anomaly: Anomaly, message: int) -> None:
    begun, ended, back = anomaly.first.events
    assert facts.acked[message] < begun == facts.reads[ended].begun
    assert message not in facts.reads[ended].items
    assert message in facts.reads[back].items
    own = facts.reads[ended].process == facts.process_of[message]
    assert own == (anomaly.name == "own-write-missing")


def _regressed(facts: Facts, anomaly: Anomaly, message: int) -> None:
    before, after = (facts.reads[index] for index in anomaly.first.events)
    assert before.process == after.process
    assert message in before.items
    assert message not in after.items


def _resurrected(facts: Facts, anomaly: Anomaly, message: int) -> None:
    forgotten, begun, ended = anomaly.first.events
    assert facts.events[forgotten].operation in ("forget", "retract")
    assert facts.events[forgotten].kind == "ok"
    asked = facts.events[facts.begun[forgotten]].value
    assert not isinstance(asked, RetractAsked) or message in from_runs(asked.messages)
    assert forgotten < begun
    assert message in facts.reads[ended].items
    assert facts.invoked[message] < facts.begun[forgotten]


def _duplicate(facts: Facts, anomaly: Anomaly, message: int) -> None:
    assert facts.reads[anomaly.first.events[1]].items.count(message) > 1


def _reorder(facts: Facts, anomaly: Anomaly, message: int) -> None:
    other = (
        int(anomaly.sentence.split(" behind m")[-1].split(" ")[0]) if " behind m" in anomaly.sentence else -1
    )
    if other < 0:
        first, second = (facts.reads[index].items for index in anomaly.first.events)
        other = int(anomaly.sentence.split(", comes after m")[1].split(",")[0])
        assert first.index(other) < first.index(message)
        assert second.index(other) > second.index(message)
        return
    items = facts.reads[anomaly.first.events[-1]].items
    assert items.index(other) < items.index(message)
    same = facts.write_of[message] is facts.write_of[other] and other > message
    assert same or facts.acked[message] < facts.invoked[other]


def _altered(facts: Facts, anomaly: Anomaly, message: int) -> None:
    read = facts.reads[anomaly.first.events[-1]]
    odd = [item for item in read.items if isinstance(item, OddElement)]
    assert any(item.message == message or (item.damaged and message not in read.items) for item in odd)


def _leak(facts: Facts, anomaly: Anomaly, message: int) -> None:
    read = facts.reads[anomaly.first.events[1]]
    assert read.session == anomaly.first.session != facts.session_of[message]
    assert any(
        item == message or (isinstance(item, OddElement) and item.message == message) for item in read.items
    )


def _phantom(facts: Facts, anomaly: Anomaly, message: int) -> None:
    read = facts.reads[anomaly.first.events[0]]
    assert any(isinstance(item, OddElement) or facts.invoked[item] > read.ended for item in read.items)


def _dirty(facts: Facts, anomaly: Anomaly, message: int) -> None:
    assert facts.outcomes[message] == {"fail"}
    assert message in facts.reads[anomaly.first.events[1]].items


def _hidden(facts: Facts, anomaly: Anomaly, message: int) -> None:
    _, ended, counted = anomaly.first.events
    value = facts.events[counted].value
    assert isinstance(value, RowsCounted)
    assert value.rows > len(facts.reads[ended].items)
    assert message not in facts.reads[ended].items


def _fractured(facts: Facts, anomaly: Anomaly, message: int) -> None:
    statements = facts.reads[anomaly.first.events[1]].statements
    assert 0 < sum(message in items for items in statements) < len(statements)


def _overdue(facts: Facts, anomaly: Anomaly, message: int) -> None:
    assert message in facts.reads[anomaly.first.events[-1]].items
    assert facts.write_of[message].retention_s is not None


def _diverged(facts: Facts, anomaly: Anomaly, message: int) -> None:
    value = facts.events[anomaly.first.events[0]].value
    assert isinstance(value, Found)
    listed = message in _tail(Seen(tail=value.listed))
    assert listed != (message in _tail(Seen(tail=value.found)))


def _unreadable(facts: Facts, anomaly: Anomaly, message: int) -> None:
    event = facts.events[anomaly.first.events[0]]
    assert event.kind == "fail"
    assert event.operation == "read"
    assert any(
        facts.session_of[m] == event.session and acked < facts.begun[event.index]
        for m, acked in facts.acked.items()
    )


def _refused(facts: Facts, anomaly: Anomaly, message: int) -> None:
    assert facts.events[anomaly.first.events[0]].kind == "engine-refused"


def _never_recovered(facts: Facts, anomaly: Anomaly, message: int) -> None:
    healed, last = anomaly.first.events
    assert facts.events[healed].kind == "fault-healed"
    assert facts.events[last].kind in ("fail", "unknown")
    assert not any(done > healed for done in facts.acked.values())


def _blamed(facts: Facts, anomaly: Anomaly, message: int) -> None:
    event = facts.events[anomaly.first.events[0]]
    assert event.kind in ("fail", "unknown")
    assert event.value == BadEnd("raised" if anomaly.name == "raised" else "hang")


_RULES: dict[str, Callable[[Facts, Anomaly, int], None]] = {
    "refuses-to-start": _refused,
    "unreadable": _unreadable,
    "does-not-recover": _never_recovered,
    "silent-reset": _silent_reset,
    "hidden": _hidden,
    "cross-session-leak": _leak,
    "corrupted": _altered,
    "phantom": _phantom,
    "dirty-read": _dirty,
    "duplicate": _duplicate,
    "lost-update": _lost_update,
    "trimmed": _trimmed,
    "dropped": _gone_undisturbed,
    "torn-turn": _torn,
    "lost-tail": _lost_tail,
    "hole": _hole,
    "reorder": _reorder,
    "fractured-read": _fractured,
    "stale-read": _stale,
    "own-write-missing": _stale,
    "non-monotonic-read": _regressed,
    "resurrected": _resurrected,
    "expired-early": _lost,
    "never-expired": _overdue,
    "index-divergence": _diverged,
    "raised": _blamed,
    "hang": _blamed,
}
