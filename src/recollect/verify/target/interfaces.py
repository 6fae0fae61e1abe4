"""How a store takes its messages: as text, mappings, our own type, a class of its own, or a framework's.

An `Interface` makes a message of each kind in `contents`, and says what differs when it comes back. `kinds` are those
that it can express: what a store's interface has no place for is not tried, and not held against the store. Where an
interface takes anything (a mapping without a type), a field that does not come back at all is distinguished from one
that comes back changed: `Difference.unkept`.
"""

from __future__ import annotations

import enum
import inspect
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol, get_args, get_origin, get_type_hints, is_typeddict

from recollect.message import Message
from recollect.store import Stored
from recollect.verify.target.contents import AGAIN, IMAGE, KINDS, TEXTS, TOOL, Spoken, call_id, spoken
from recollect.verify.target.marked_text import ROLES, role_of
from recollect.verify.target.pipe import Said

ALL_KINDS = frozenset(KINDS)
_SHOWN_CHARACTERS, _PART_CHARACTERS = 50, 24
_ABSENT: Any = object()


class Difference(NamedTuple):
    """What differs from what was written."""

    what: str
    unkept: bool = False


class Interface(Protocol):
    @property
    def kinds(self) -> frozenset[str]:
        """The kinds it can express."""

    def make(self, one: Said) -> Any:
        """The message in the form that the store takes."""

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        """What differs between the message of this number and kind and what a read returned for it."""


def parameters(method: Any) -> dict[str, inspect.Parameter]:
    """What a method takes; annotations that cannot be resolved here stay as they are written. What has none is what the
    method that it overrides says: who writes a framework's store need not repeat its annotations."""
    found = _own_parameters(method)
    kind = type(getattr(method, "__self__", None))
    name = getattr(method, "__name__", "")
    for base in kind.__mro__[1:]:
        if all(one.annotation is not one.empty for one in found.values()):
            break
        if inspect.isfunction(overridden := vars(base).get(name)):
            found = _completed(found, list(_own_parameters(overridden).values())[1:])
    return found


def _completed(
    found: dict[str, inspect.Parameter], overridden: list[inspect.Parameter]
) -> dict[str, inspect.Parameter]:
    """With the annotations of the overridden method, by name or else by place."""
    by_name = {one.name: one for one in overridden}
    completed = {}
    for place, (name, one) in enumerate(found.items()):
        other = by_name.get(name) or (overridden[place] if place < len(overridden) else one)
        if one.annotation is one.empty and one.kind is other.kind:
            one = one.replace(annotation=other.annotation)
        completed[name] = one
    return completed


def _own_parameters(method: Any) -> dict[str, inspect.Parameter]:
    for resolved in (True, False):
        try:
            return dict(inspect.signature(method, eval_str=resolved).parameters)
        except (NameError, AttributeError, SyntaxError):
            continue  # imported for type checkers only
        except (TypeError, ValueError):
            break
    return {}


def as_spoken(one: Said) -> Spoken:
    if not one.kind:
        return Spoken(role_of(one.number), one.text)
    return Spoken("user", one.text) if one.kind == AGAIN else spoken(one.number, one.kind)


class Texts:
    """Nothing but text."""

    kinds = TEXTS

    def make(self, one: Said) -> str:
        content = as_spoken(one).content
        assert isinstance(content, str)
        return content

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        return compared(spoken(number, kind), raw, named=False)


class OpenMapping(dict[str, Any]):
    """A plain mapping whose fields can also be read as attributes: stores do both."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None  # so that `hasattr` and `copy` work


class Mappings:
    """A mapping with role and content and, if no type says otherwise, any other fields."""

    def __init__(self, annotation: Any = None) -> None:
        hints = _hints(annotation) if is_typeddict(annotation) else None
        self._fields = None if hints is None else frozenset(hints)
        self.kinds = ALL_KINDS if hints is None else _expressed(hints)

    def make(self, one: Said) -> OpenMapping:
        role, content, fields = self._fitting(as_spoken(one))
        return OpenMapping(role=role, content=content, **fields)

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        return compared(self._fitting(spoken(number, kind)), raw, named=self._fields is not None)

    def _fitting(self, said: Spoken) -> Spoken:
        return said if self._fields is None else _only(said, self._fields)


class RoleAndContent(Mappings):
    """A role, a text, and the fields that a method has parameters for; a read may leave the fields out."""

    def __init__(self, hints: Mapping[str, Any]) -> None:
        super().__init__()
        self._fields = frozenset(hints)
        self._role = hints["role"]
        self.kinds = _expressed(hints)

    def make(self, one: Said) -> OpenMapping:
        made = super().make(one)
        return OpenMapping(made, role=_as_role(self._role, made["role"]))

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        said = self._fitting(spoken(number, kind))
        fields = {name: _as_json(value, _field(raw, name)) for name, value in said.fields.items()}
        return compared(said._replace(fields=fields), raw, named=False)


class OwnClass:
    """A class of the store's own, filled through the parameters of its constructor."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._wanted = parameters(kind)
        self.kinds = _expressed({name: found.annotation for name, found in self._wanted.items()})

    def make(self, one: Said) -> Any:
        role, content, fields = as_spoken(one)
        role = _as_role(self._wanted["role"].annotation, role) if "role" in self._wanted else role
        values = {**fields, "role": role, "content": content, "text": content}
        if (stamp := self._wanted.get("timestamp")) is not None and stamp.default is stamp.empty:
            now = time.time()
            values["timestamp"] = datetime.fromtimestamp(now, UTC) if stamp.annotation is datetime else now
        return self._kind(**{name: value for name, value in values.items() if name in self._wanted})

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        said = _only(spoken(number, kind), self._wanted.keys())
        return compared(said, raw, named=True)


class OurMessages:
    """`recollect.Message`: tool calls and their results are blocks, a name is metadata."""

    kinds = ALL_KINDS

    def make(self, one: Said) -> Message:
        if not one.kind:
            return Message(role_of(one.number), one.text, metadata={"n": one.number})
        said = _as_blocks(as_spoken(one), one.number)
        return Message(said.role, said.content, metadata=said.fields.get("metadata", {}))

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        return compared(_as_blocks(spoken(number, kind), number), raw, named=False)


def _as_blocks(said: Spoken, number: int) -> Spoken:
    role, content, fields = said
    if "tool_calls" in fields:
        call = {"type": "tool_call", "id": call_id(number), "name": TOOL, "arguments": {"query": content}}
        return Spoken(role, [call])
    if "tool_call_id" in fields:
        return Spoken(role, [{"type": "tool_result", "tool_call_id": call_id(number), "content": content}])
    if "name" in fields:
        return Spoken(role, content, {"metadata": {**fields["metadata"], "name": fields["name"]}})
    return said


class LangChainMessages:
    """LangChain's own classes."""

    kinds = ALL_KINDS
    COMPARED = ("type", "role", "content", "name", "tool_calls", "tool_call_id", "additional_kwargs")

    def make(self, one: Said) -> Any:
        from langchain_core import messages  # the target's own dependency

        role, content, fields = as_spoken(one)
        if "tool_calls" in fields:
            call = {"name": TOOL, "args": {"query": content}, "id": call_id(one.number), "type": "tool_call"}
            return messages.AIMessage(content=content, tool_calls=[call])
        if role == "assistant":
            return messages.AIMessage(content=content)
        if role == "tool":
            return messages.ToolMessage(content=content, tool_call_id=call_id(one.number), name=TOOL)
        if role == "system":
            return messages.SystemMessage(content=content)
        if role != "user":
            return messages.ChatMessage(content=content, role=role)
        name, own = fields.get("name"), fields.get("metadata", {})
        return messages.HumanMessage(content=content, name=name, additional_kwargs=own)

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        expected = self.make(Said(number, "", kind))
        if not isinstance(getattr(raw, "additional_kwargs", None), Mapping):
            return compared(spoken(number, kind), raw, named=False)
        for name in self.COMPARED:
            written, read = getattr(expected, name, None), getattr(raw, name, None)
            if not _same(written, read):
                return Difference(f"{_called(name)}{shown(written)} came back as {shown(read)}")
        return None


class AgentItems:
    """Items of the OpenAI Agents SDK: messages, and calls and their outputs, which have no role."""

    kinds = ALL_KINDS

    def make(self, one: Said) -> OpenMapping:
        role, content, fields = as_spoken(one)
        if "tool_calls" in fields:
            arguments = json.dumps({"query": content})
            call = {"type": "function_call", "call_id": call_id(one.number), "name": TOOL}
            return OpenMapping(call, arguments=arguments)
        if "tool_call_id" in fields:
            return OpenMapping(type="function_call_output", call_id=call_id(one.number), output=content)
        if isinstance(content, list):
            image = {"type": "input_image", "image_url": IMAGE, "detail": "auto"}
            content = [{"type": "input_text", "text": content[0]["text"]}, image]
        return OpenMapping(role=role, content=content, **fields)

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        expected = self.make(Said(number, "", kind))
        if "role" in expected:
            fields = {name: expected[name] for name in expected if name not in ("role", "content")}
            return compared(Spoken(expected["role"], expected["content"], fields), raw, named=False)
        for name, written in expected.items():
            read = _field(raw, name)
            if not _same(written, read):
                return Difference(_changed(name, written, read))
        return None


# ---- what an interface can express


def _hints(annotation: Any) -> dict[str, Any]:
    try:
        return get_type_hints(annotation)
    except NameError:
        return dict(annotation.__annotations__)


def _expressed(hints: Mapping[str, Any]) -> frozenset[str]:
    """The kinds that fields of these types have a place for."""
    return frozenset(kind for kind in KINDS if kind in TEXTS or _has_place(hints, spoken(0, kind)))


def _has_place(hints: Mapping[str, Any], said: Spoken) -> bool:
    content = hints.get("content", hints.get("text"))
    if isinstance(said.content, list) and content is str:
        return False
    if "role" not in hints or not _takes_role(hints["role"], said.role):
        return False
    # A tool's result is recognised by its role; the other kinds depend on their fields.
    return not said.fields or said.role == "tool" or bool(said.fields.keys() & hints.keys())


def _takes_role(hint: Any, role: str) -> bool:
    if get_origin(hint) is Literal:
        return role in get_args(hint)
    return not (inspect.isclass(hint) and issubclass(hint, enum.Enum))


def _as_json(written: Any, read: Any) -> Any:
    """What was written; as text if the read has it as the JSON that a column holds, as rows do."""
    if isinstance(read, str) and not isinstance(written, str):
        with suppress(ValueError):
            return read if _same(written, json.loads(read)) else written
    return written


def _as_role(hint: Any, role: str) -> Any:
    """The role as the store calls it: one of its enumeration, or one of the words that it lists."""
    words: Any = get_args(hint) if get_origin(hint) is Literal else ()
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        words = hint
    return next((word for word in words if role in _names_of(word)), role)


def _names_of(word: Any) -> tuple[str, ...]:
    if isinstance(word, enum.Enum):
        return (ROLES.get(str(word.value), str(word.value)), word.name.lower())
    return (ROLES.get(word, word),)


def _only(said: Spoken, names: Any) -> Spoken:
    return said._replace(fields={name: value for name, value in said.fields.items() if name in names})


# ---- what came back


def compared(said: Spoken, raw: Any, *, named: bool) -> Difference | None:
    """`named` means that the interface itself names the fields, so none may be missing."""
    if isinstance(raw, Stored):
        raw = raw.message
    if isinstance(raw, bytes):
        raw = raw.decode("utf-8", "replace")
    role = next((found for name in ("role", "type") if isinstance(found := _field(raw, name), str)), None)
    if role is not None and ROLES.get(role, role) != said.role:
        return Difference(f"role {said.role!r} came back as {role!r}")
    content = raw if isinstance(raw, str) else _content(raw)
    if content is not _ABSENT and not _same(said.content, content):
        return Difference(_changed("content", said.content, content))
    absent = [name for name in said.fields if _field(raw, name) is _ABSENT]
    for name, written in said.fields.items():
        if name not in absent and not _same(written, _field(raw, name)):
            return Difference(_changed(name, written, _field(raw, name)))
    if not absent:
        return None
    unkept = not named and len(absent) == len(said.fields)
    return Difference(f"it came back without its {' and '.join(absent)}", unkept=unkept)


def _content(raw: Any) -> Any:
    found = _field(raw, "content")
    return _field(raw, "text") if found is _ABSENT else found


def _field(raw: Any, name: str) -> Any:
    if isinstance(raw, Mapping):
        return raw.get(name, _ABSENT)
    return getattr(raw, name, _ABSENT)


def _same(written: Any, read: Any) -> bool:
    """A mapping may have more fields than were written: stores add their own."""
    if isinstance(written, Mapping) and isinstance(read, Mapping):
        return all(name in read and _same(value, read[name]) for name, value in written.items())
    if isinstance(written, list) and isinstance(read, list | tuple):
        return len(written) == len(read) and all(map(_same, written, read))
    return isinstance(read, type(written)) and bool(written == read)


def _changed(name: str, written: Any, read: Any) -> str:
    if read is _ABSENT:
        return f"it came back without its {name}"
    if isinstance(written, str) and isinstance(read, str):
        same = next(
            (place for place, (one, other) in enumerate(zip(written, read, strict=False)) if one != other),
            min(len(written), len(read)),
        )
        return f"{name}: {_from(written, same)} came back as {_from(read, same)}"
    return f"{name}: {shown(written)} came back as {shown(read)}"


def _from(text: str, place: int) -> str:
    """The text from a few characters before the place where it differs."""
    start = max(0, place - 8)
    return ("…" if start else "") + shown(text[start : start + _PART_CHARACTERS])


def _called(name: str) -> str:
    return "" if name == "type" else f"{name}: "


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
