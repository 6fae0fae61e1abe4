"""What a read returned, in any type: the numbers of the messages in it, and what is odd about the others.

A row of a table is a message too, whatever its columns are called: its content is the value with a mark, or the one
behind the role. But a store that calls it `content` in some messages has to do so in all of them: its readers would not
find the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.message import Damaged
from recollect.store import Stored
from recollect.verify.target import pipe
from recollect.verify.target.contents import KINDS, spoken
from recollect.verify.target.interfaces import Interface, Mappings, RoleAndContent
from recollect.verify.target.marked_text import ROLES, Recognised, excerpt, kind_marked, recognise

_ANYTHING = Mappings()
KNOWN_ROLES = frozenset({*ROLES, *(spoken(0, kind).role for kind in KINDS), "user", "assistant"})


def elements(raw: list[Any], sequence: int | None = None, interface: Interface = _ANYTHING) -> pipe.Elements:
    """`sequence` is that of the last one, if the store has sequences; `interface` is how they were written."""
    numbers: list[int] = []
    odd: list[Recognised] = []
    rows = not any(map(_has_content, raw))
    for item in raw:
        if is_loss_marker(item):
            continue
        what = recognised(item, interface, rows=rows)
        if what.number is not None and what.intact:
            numbers.append(what.number)
        else:
            numbers.append(-1)
            odd.append(what)
    return pipe.Elements(numbers, odd, sequence)


def recognised(raw: Any, interface: Interface = _ANYTHING, *, rows: bool = True) -> Recognised:
    """What one element of a read is; with `rows`, its content may have any name."""
    if isinstance(raw, Stored):
        raw = raw.message
    if isinstance(raw, Damaged):
        return Recognised(None, intact=False, damaged=True, excerpt=excerpt(raw.reason))
    if isinstance(interface, RoleAndContent) and isinstance(raw, str):
        raw = _of_line(raw)
    raw = _of_row(raw) if rows else raw
    text, role, metadata = fields_of(raw)
    found = recognise(text, role, metadata)
    if found.number is None and (marked := kind_marked(text) or kind_marked(_whole(raw))):
        return _of_kind(*marked, raw, interface) or found
    return found


def _has_content(raw: Any) -> bool:
    return (
        "content" in raw if isinstance(raw, Mapping) else hasattr(raw, "content") or isinstance(raw, Stored)
    )


def _of_row(raw: Any) -> Any:
    """A row, or an object whose content has another name, as a mapping with role and content; anything else stays as
    it is."""
    if isinstance(raw, str | bytes) or _has_content(raw):
        return raw
    named = _named_values(raw)
    for name in ("content", "text"):
        if name in named:
            return {**named, "content": named[name]}
    if "type" in named:
        return raw  # an item that is no text, such as a call
    found = _of_values(list(named.values()) or (raw if isinstance(raw, tuple | list) else ()))
    return raw if found is None else {**named, **found}


def _of_line(text: str) -> Any:
    """``user: hello``, where role and content were given apart."""
    role, colon, content = text.partition(": ")
    return {"role": role, "content": content} if colon and role in KNOWN_ROLES else text


def _named_values(raw: Any) -> Mapping[str, Any]:
    if isinstance(raw, Mapping):
        return raw
    if hasattr(raw, "keys") and hasattr(raw, "__getitem__"):
        return {name: raw[name] for name in raw.keys()}  # noqa: SIM118  (sqlite3.Row has no other way)
    return vars(raw) if hasattr(raw, "__dict__") else {}


def _of_values(values: Sequence[Any]) -> dict[str, str] | None:
    """A session may be called `user`, too: the role is the one that is nearest to the content."""
    texts = {place: value for place, value in enumerate(values) if isinstance(value, str)}
    roles = [place for place, text in texts.items() if text in KNOWN_ROLES]
    content = next((place for place, text in texts.items() if _is_marked(text)), None)
    if content is None:
        behind = [place + 1 for place in roles if place + 1 in texts]
        content = behind[-1] if behind else max(texts.keys() - {*roles}, default=None)
    if content is None:
        return None
    near = sorted((abs(place - content), place > content, place) for place in roles if place != content)
    return {"content": texts[content]} | ({"role": texts[near[0][-1]]} if near else {})


def _is_marked(text: str) -> bool:
    return kind_marked(text) is not None or recognise(text).number is not None


def _whole(raw: Any) -> str:
    """A tool call has no text: its mark is somewhere in its fields."""
    return "" if isinstance(raw, str | bytes) else repr(raw)


def _of_kind(number: int, kind: str, raw: Any, interface: Interface) -> Recognised | None:
    """None if there is no such message: whatever it is, nobody here wrote it."""
    if kind not in KINDS or kind not in interface.kinds:
        return None
    difference = interface.difference(number, kind, raw)
    if difference is None:
        return Recognised(number, intact=True)
    what = excerpt(f"{KINDS[kind].called}: {difference.what}")
    return Recognised(number, intact=False, excerpt=what, unkept=difference.unkept)


def is_loss_marker(raw: Any) -> bool:
    """Whether it is the marker that our stores return in place of a lost message. It does not count as an element."""
    return isinstance(raw, Stored) and isinstance(raw.message, Damaged) and not raw.message.raw


def fields_of(raw: Any) -> tuple[str, str | None, Mapping[str, Any] | None]:
    """Its text, role and metadata, as far as it has them."""
    if isinstance(raw, str):
        return raw, None, None
    if isinstance(raw, bytes):
        return raw.decode("utf-8", "replace"), None, None
    if isinstance(raw, Mapping):
        content, role, metadata = raw.get("content"), raw.get("role", raw.get("type")), raw.get("metadata")
    else:
        content = getattr(raw, "content", getattr(raw, "text", raw))
        role, metadata = getattr(raw, "role", getattr(raw, "type", None)), getattr(raw, "metadata", None)
    return (
        _text(content),
        role if isinstance(role, str) else None,
        metadata if isinstance(metadata, Mapping) else None,
    )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        blocks = (block.get("text", "") if isinstance(block, Mapping) else str(block) for block in content)
        return "\n".join(blocks)
    return str(content)
