"""A conversation of any framework, judged without sequences: what its messages themselves give away.

A tool's answer belongs to a call, a message's id is its own, and times do not run backwards. Messages may be mappings
or objects of the OpenAI Agents SDK, LangChain, LlamaIndex, Strands, chat completions, or ours. What has none of these
marks is only counted: nothing is known about a plain text that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recollect.audit.finding import AuditFinding
from recollect.message import Damaged
from recollect.store import Stored

FINDINGS_MAX = 100
"""For one session."""
FUTURE_S = 15 * 3600.0
"""How far a time may be ahead: many come without their time zone."""
BACKWARDS_S = 1.0
"""How far a time may lie before the one above it: many stores keep whole seconds."""
CALLS = ("function_call", "custom_tool_call", "computer_call")
"""Items of the Agents SDK that wait for an answer."""
NO_ID = ("", "__fake_id__")
"""What the Agents SDK writes where a model gave no id."""
TIMES = ("timestamp", "created_at", "ts")


@dataclass
class Marks:
    """What one message gives away."""

    place: int
    """From 1, as people count."""
    item: Any
    id: str | None = None
    calls: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    """Calls that need no answer."""
    answers: list[str] = field(default_factory=list)
    at: float | None = None

    @property
    def speaks(self) -> bool:
        """Whether it is more than a step of a tool."""
        return not self.calls and not self.answers and not self.named


def judged(
    session: str, items: Sequence[Any], now: float, *, window: int | None = None
) -> list[AuditFinding]:
    """What is wrong with the conversation. `window` is how many messages the store says it keeps."""
    marks = [marks_of(place, item) for place, item in enumerate(items, 1)]
    slid = window is not None and len(items) >= window
    found = [
        *_unreadable(session, marks),
        *_halves(session, marks, slid=slid),
        *_duplicates(session, marks),
        *_times(session, marks, now),
    ]
    return found[:FINDINGS_MAX]


def text_bytes(items: Sequence[Any]) -> int:
    """How much text there is."""
    return sum(len(_text(item).encode("utf-8", "surrogatepass")) for item in items)


# ---- what a message gives away


def marks_of(place: int, item: Any) -> Marks:
    item = item.message if isinstance(item, Stored) else item
    marks = Marks(place, item)
    kind, call = _field(item, "type"), _field(item, "call_id")
    if isinstance(kind, str) and isinstance(call, str):
        if kind.endswith("_call_output"):
            marks.answers.append(call)
        elif kind.endswith("_call"):
            (marks.calls if kind in CALLS else marks.named).append(call)
    for holder in (item, _field(item, "additional_kwargs")):
        marks.calls += _ids(_field(holder, "tool_calls"), "id")
        marks.named += _ids(_field(holder, "invalid_tool_calls"), "id")
        answer = _field(holder, "tool_call_id")
        marks.answers += [answer] if isinstance(answer, str) else []
    _blocks(item, marks)
    marks.calls, marks.answers = list(dict.fromkeys(marks.calls)), list(dict.fromkeys(marks.answers))
    own = _field(item, "id")
    marks.id = own if isinstance(own, str) and own not in NO_ID and kind != "item_reference" else None
    marks.at = next((at for name in TIMES if (at := _time(_field(item, name))) is not None), None)
    return marks


def _blocks(item: Any, marks: Marks) -> None:
    """Blocks of content: ours, Anthropic's, LlamaIndex's and those of Strands."""
    for holder in ("content", "blocks"):
        blocks = _field(item, holder)
        for block in blocks if isinstance(blocks, list | tuple) else ():
            kind = _field(block, "type") or _field(block, "block_type")
            use, result = _field(block, "toolUse"), _field(block, "toolResult")
            if kind in ("tool_call", "tool_use"):
                marks.calls += _texts(_field(block, "tool_call_id") or _field(block, "id"))
            elif kind == "tool_result":
                marks.answers += _texts(_field(block, "tool_call_id") or _field(block, "tool_use_id"))
            elif use is not None:
                marks.calls += _texts(_field(use, "toolUseId"))
            elif result is not None:
                marks.answers += _texts(_field(result, "toolUseId"))


def _ids(calls: Any, name: str) -> list[str]:
    return [
        found
        for call in (calls if isinstance(calls, list | tuple) else ())
        for found in _texts(_field(call, name))
    ]


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else []


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _text(item: Any) -> str:
    item = item.message if isinstance(item, Stored) else item
    if isinstance(item, str):
        return item
    content = _field(item, "content")
    return content if isinstance(content, str) else "" if content is None else str(content)


def _time(value: Any) -> float | None:
    """Epoch seconds; also of milliseconds, microseconds and nanoseconds, and of ISO 8601."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e9 < value < 1e20:
        return None
    while value > 1e11:
        value /= 1000
    return float(value)


# ---- what they have to do with each other


def _unreadable(session: str, marks: list[Marks]) -> Iterator[AuditFinding]:
    for one in marks:
        if isinstance(one.item, Damaged):
            yield _found("unreadable", session, one, f"message {one.place}: {one.item.reason[:200]}")
        elif one.item is None or (isinstance(one.item, dict | list | bytes) and not one.item):
            yield _found(
                "unreadable", session, one, f"message {one.place} is {one.item!r}: nothing is left of it"
            )


def _halves(session: str, marks: list[Marks], *, slid: bool) -> Iterator[AuditFinding]:
    known = {call: one for one in marks for call in (*one.calls, *one.named)}
    answered = {call for one in marks for call in one.answers}
    spoken_at = max((one.place for one in marks if one.speaks), default=0)
    for one in marks:
        for call in one.answers:
            before = known.get(call)
            if before is None and not slid:
                said = f"message {one.place} answers the call {call[:60]!r}, which is not there"
                yield _found("half-turn", session, one, said)
            elif before is not None and before.place > one.place:
                said = f"message {one.place} answers the call {call[:60]!r}, which follows as message {before.place}"
                yield _found("half-turn", session, one, said)
        for call in one.calls:
            if call not in answered:
                gone_on = spoken_at > one.place
                said = f"the call {call[:60]!r} of message {one.place} has no answer"
                more = ", and the conversation goes on" if gone_on else " yet"
                yield _found("half-turn" if gone_on else "open-call", session, one, said + more)


def _duplicates(session: str, marks: list[Marks]) -> Iterator[AuditFinding]:
    """The same id and the same content: another content under the same id may be a newer version of it."""
    seen: dict[str, Marks] = {}
    for one in marks:
        names = [f"id {one.id}"] if one.id else [f"call {call}" for call in one.calls]
        names += [] if one.id else [f"answer to {call}" for call in one.answers]
        first = next((seen[name] for name in names if name in seen), None)
        if first is not None and _same(first.item, one.item):
            said = f"message {one.place} is message {first.place} once more ({names[0][:80]})"
            yield _found("duplicate", session, one, said)
        for name in names:
            seen.setdefault(name, one)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # somebody's class; then nothing is known
        return False


def _times(session: str, marks: list[Marks], now: float) -> Iterator[AuditFinding]:
    latest: Marks | None = None
    for one in marks:
        if one.at is None:
            continue
        if one.at > now + FUTURE_S:
            yield _found(
                "clock", session, one, f"message {one.place} is of {one.at - now:,.0f} s in the future"
            )
        if latest is not None and latest.at is not None and one.at < latest.at - BACKWARDS_S:
            said = f"message {one.place} is {latest.at - one.at:,.0f} s older than message {latest.place} above it"
            yield _found("order", session, one, said)
        if latest is None or latest.at is None or one.at > latest.at:
            latest = one


def _found(name: str, session: str, one: Marks, sentence: str) -> AuditFinding:
    return AuditFinding(name=name, session=session, sentence=sentence, first=one.place, last=one.place)
