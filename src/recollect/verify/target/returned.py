"""What a read returned, of whatever types: the numbers of the messages in it, and what is odd about the others."""

from collections.abc import Mapping
from typing import Any

from recollect.message import Damaged
from recollect.store import Stored
from recollect.verify.target import pipe
from recollect.verify.target.marked_text import EXCERPT_CHARACTERS, Recognised, recognise


def elements(raw: list[Any], sequence: int | None = None) -> pipe.Elements:
    """`sequence` is that of the last one, where the store has sequences."""
    numbers: list[int] = []
    odd: list[Recognised] = []
    for item in raw:
        if _is_loss_marker(item):
            continue
        what = recognised(item)
        if what.number is not None and what.intact:
            numbers.append(what.number)
        else:
            numbers.append(-1)
            odd.append(what)
    return pipe.Elements(numbers, odd, sequence)


def recognised(raw: Any) -> Recognised:
    """What one element of a read is."""
    if isinstance(raw, Stored):
        raw = raw.message
    if isinstance(raw, Damaged):
        return Recognised(None, intact=False, damaged=True, excerpt=raw.reason[:EXCERPT_CHARACTERS])
    return recognise(*_fields(raw))


def _is_loss_marker(raw: Any) -> bool:
    """Our stores say in its place that a message is gone. That is no element: what is missing is missing."""
    return isinstance(raw, Stored) and isinstance(raw.message, Damaged) and not raw.message.raw


def _fields(raw: Any) -> tuple[str, str | None, Mapping[str, Any] | None]:
    if isinstance(raw, str):
        return raw, None, None
    if isinstance(raw, bytes):
        return raw.decode("utf-8", "replace"), None, None
    if isinstance(raw, Mapping):
        content, role, metadata = raw.get("content"), raw.get("role", raw.get("type")), raw.get("metadata")
    else:
        content = getattr(raw, "content", raw)
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
