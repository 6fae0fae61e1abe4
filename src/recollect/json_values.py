"""What JSON can hold, and so what may be written: checked in bounded time and memory, before anything is encoded.

A value is walked once. A list or mapping reached again by another path is not walked again: its size and height are
known. So a few hundred objects that would unfold to gigabytes are refused at once, and so is a value that contains
itself.
"""

import json
import math
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from recollect.errors import Refused, shorten, shown

Json = Any
"""Text, numbers, booleans, None, and lists and mappings of them."""

DEPTH_MAX = 200
"""Nesting of blocks and metadata. Deeper JSON breaks decoders, ours included, so it is refused on writing."""

INTEGER_BITS_MAX = 2_100
"""Python always converts integers of up to 640 digits; longer ones may not be readable elsewhere."""

_PATH_SHOWN_MAX = 200
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

_Measure = tuple[int, int]
"""Bytes at least, and levels."""


class _Unfit(Exception):
    """Why a value cannot be written; the path to it is put together as the exception travels up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""


def encode_json(value: Json) -> bytes:
    """The JSON of a checked value; lone surrogates, which UTF-8 cannot hold, become escapes."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        refuse_pairs(value, "metadata")
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode_json(encoded: bytes) -> Json:
    """What `encode_json` was given; `ValueError` if these are not its bytes."""
    try:
        return msgspec.json.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return json.loads(encoded)


def check_text(value: object, name: str) -> None:
    """A string enum's member counts as text: it is written as its value, and equals what comes back."""
    if type(value) is not str and not (isinstance(value, str) and _is_member(value)):
        raise Refused(f"{name}: text, not {kind_of(value) if isinstance(value, str) else shown(value)}")


def check_json(root: Json, name: str, bytes_max: int) -> int:
    """A lower bound on the bytes of a list or mapping; `Refused`, with the place, if it would come back different."""
    try:
        return _measure(root, DEPTH_MAX, {}, bytes_max)[0]
    except _Unfit as unfit:
        path = unfit.path if len(unfit.path) <= _PATH_SHOWN_MAX else f"{unfit.path[:_PATH_SHOWN_MAX]}…"
        raise Refused(f"{name}{path}: {unfit.reason}") from None


def _measure(value: Json, room: int, known: dict[int, _Measure | None], bytes_max: int) -> _Measure:
    """`room` is how many levels it may have, `known` what was measured already: None while that is being measured."""
    if id(value) in known:
        measured = known[id(value)]
        if measured is None:
            raise _Unfit("contains itself")
        if measured[1] > room:
            raise _too_deep()
        return measured
    if room == 0:
        raise _too_deep()
    known[id(value)] = None
    mapping = isinstance(value, dict)
    # The methods of the plain types: those decide what is encoded, whatever a subclass overrides.
    items: Iterable[tuple[Any, Json]] = dict.items(value) if mapping else enumerate(list.__iter__(value))
    size, height = 2, 1
    for key, item in items:
        if mapping:
            if not isinstance(key, str):
                given = shown(key) if isinstance(key, int | float | None) else f"of type {kind_of(key)}"
                raise _Unfit(f"key {given} is not text and would come back as text")
            size += len(key) + 3
        try:
            own = _scalar(item)
            if own is None:
                own, levels = _measure(item, room - 1, known, bytes_max)
                height = max(height, levels + 1)
        except _Unfit as unfit:
            step = f".{key if len(key) <= 60 else shorten(key)}" if mapping else f"[{key}]"
            unfit.path = step + unfit.path
            raise
        size += own + 1
    if size > bytes_max:
        raise _Unfit(f"at least {size:,} bytes; at most {bytes_max:,} fit in one record")
    known[id(value)] = size, height
    return size, height


def _scalar(value: Json) -> int | None:
    """A lower bound on its bytes; None for a list or mapping."""
    kind = type(value)
    if kind is str:
        return len(value) + 2
    if kind is int:
        if value.bit_length() > INTEGER_BITS_MAX:
            raise _Unfit(f"{shown(value)}; at most {INTEGER_BITS_MAX:,} bits can be read back everywhere")
        return 1
    if kind is float:
        if not math.isfinite(value):
            raise _Unfit(f"{value} cannot be written as JSON; use None or text")
        return 3
    if value is None or kind is bool:
        return 4
    if isinstance(value, list | dict):
        return None
    if _is_member(value):
        return _scalar(value.value)
    raise _Unfit(f"{kind_of(value)} would not come back as {kind_of(value)}; convert it to JSON first")


def _is_member(value: object) -> bool:
    """Whether it belongs to an enum of texts or numbers."""
    return isinstance(value, Enum) and type(value.value) in (str, int) and value == value.value


def _too_deep() -> _Unfit:
    return _Unfit(f"nested deeper than {DEPTH_MAX} levels")


def kind_of(value: object) -> str:
    """The name of its type, with the module where needed: numpy's `bool` is not Python's."""
    kind = type(value)
    return (
        kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    )


def join_pairs(text: str) -> str:
    """The text with each surrogate pair joined into its character; a lone half stays."""
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if _PAIR.search(text)
        else text
    )


def refuse_pairs(root: Json, name: str) -> None:
    """Refuses a surrogate pair given as two characters: JSON would read the two escapes back as one character."""
    seen: set[int] = set()
    left: list[tuple[str, Json]] = [(name, root)]
    while left:
        path, value = left.pop()
        if isinstance(value, str):
            if _PAIR.search(value):
                raise Refused(
                    f"{path[:_PATH_SHOWN_MAX]}: two halves of a surrogate pair would come back as one character; join "
                    "them with .encode('utf-16', 'surrogatepass').decode('utf-16')"
                )
        elif isinstance(value, list | dict) and id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, dict):
                left += [(f"{path}, a key", key) for key in value]
                left += [(f"{path}.{shorten(key)}", item) for key, item in value.items()]
            else:
                left += [(f"{path}[{index}]", item) for index, item in enumerate(value)]
