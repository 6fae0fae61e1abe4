"""A message of a conversation, and the record of it that engines keep.

A record is JSON: ``{"v": 2, "id", "role", "content", "timestamp", "metadata"}``, and a checksum that JSON takes for
white space (`checksum`). Three rules:

* *Old records are lifted.* `UPCASTERS` is a chain: entry ``n`` turns a record of version ``n`` into one of version
  ``n + 1``. Version 0 is everything without a version: the shapes other tools have left in people's databases.
  Version 1 had no checksum; version 2 has the same fields.
* *Newer records are kept.* Fields this release does not know stay in `Message.extra`, the version in
  `Message.schema`, and both are written back unchanged. Roles are plain text, never an enumeration.
* *Nothing is dropped.* Bytes that cannot be understood, or that are not the ones written, become `Damaged`, with the
  bytes and the reason.

What JSON cannot hold (NaN, bytes, tuples, keys that are not text) is refused before anything is written, because it
would come back different: `json_values`. Lone surrogates are kept; they are rare, so only they pay for the slower
standard codec.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, cast

import msgspec

from recollect.bounds import INTEGER_MAX
from recollect.checksum import all_intact, checksum, has_changed
from recollect.errors import Refused, shorten, shown
from recollect.json_values import Json, check_json, check_text, kind_of, refuse_pairs

SCHEMA = 2
"""The record version this release writes."""

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""One record. Far above any real message, and below every engine's own limit, so that the error is ours and clear."""

TEXT_DEPTH_MAX = 8
"""How deep messages nested in messages are searched for text."""

DECODED_TOGETHER_LEAST = 2
"""Fewer records are decoded faster one by one."""


_NO_FIELD = "extra:"
"""No record has a field of this name, so decoding one leaves `Message.extra` empty."""


def new_id() -> str:
    return os.urandom(16).hex()


class Message(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Who said what, and when. `content` is text, or a list of JSON blocks (tool calls, images).

    The garbage collector does not track it: JSON has no cycles, and a history holds many of these at once.
    """

    role: str
    content: str | list[Json]
    timestamp: float = msgspec.field(default_factory=time.time)
    metadata: dict[str, Json] = msgspec.field(default_factory=dict)
    id: str = msgspec.field(default_factory=new_id)
    extra: dict[str, Json] = msgspec.field(default_factory=dict, name=_NO_FIELD)
    """Fields written by a newer release: kept as they are, and written back."""
    schema: Annotated[int, msgspec.Meta(ge=SCHEMA, le=SCHEMA)] = msgspec.field(default=SCHEMA, name="v")
    """The version of the record; a newer release's is kept. The bounds are for decoding (`decode_joined`)."""

    @property
    def text(self) -> str:
        """The content as plain text; for a list of blocks, their texts joined by newlines.

        A block may be a whole message of another library, with content of its own.
        """
        return self.content if isinstance(self.content, str) else _text_of(self.content, 0)

    @classmethod
    def from_openai(cls, item: Mapping[str, Json]) -> "Message":
        """From a chat message (``{"role", "content"}``) or an item of the Responses API or the Agents SDK.

        `to_openai` gives the same dictionary back. A message without an id gets one.
        """
        from recollect import shapes  # only needed when talking to other libraries

        return shapes.from_openai(item)

    def to_openai(self) -> dict[str, Json]:
        """As a dictionary for OpenAI's libraries."""
        from recollect import shapes

        return shapes.to_openai(self)

    @classmethod
    def from_langchain(cls, serialized: Mapping[str, Json]) -> "Message":
        """From what LangChain's `message_to_dict` or `dumpd` gives; `to_langchain` gives the same back."""
        from recollect import shapes

        return shapes.from_langchain(serialized)

    def to_langchain(self) -> dict[str, Json]:
        """As a dictionary that LangChain's `messages_from_dict` takes."""
        from recollect import shapes

        return shapes.to_langchain(self)


class Damaged(msgspec.Struct, frozen=True):
    """A record that cannot be understood, or that is gone: its raw bytes, and why."""

    raw: bytes
    reason: str


def encode(message: Message) -> bytes:
    """The record of a message, or `Refused` with the place of what cannot be kept."""
    try:
        _check(message)
        record = _encode_known(message) if not message.extra else _encode_json(_as_mapping(message))
    except UnicodeEncodeError:  # a lone surrogate: UTF-8 cannot hold it, a JSON escape can
        record = _encode_surrogates(_as_mapping(message))
    except RecursionError:
        raise Refused(
            f"message {shorten(message.id)}: nested too deeply for what is left of the stack"
        ) from None
    if len(record) > RECORD_BYTES_MAX:
        raise _too_large(message, len(record))
    return record + checksum(record)


def _encode_surrogates(fields: dict[str, Json]) -> bytes:
    for name, value in fields.items():
        refuse_pairs(value, name)
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode(raw: bytes) -> Message | Damaged:
    """The message in a record of any version or known shape. Never raises, whatever the engine holds there instead."""
    if type(raw) is not bytes:
        return _not_bytes(raw)
    if has_changed(raw):
        return _changed(raw)
    try:
        record = _decode_current(raw)
    except _NOT_CURRENT:
        return _decode_other(raw)
    return Message(record.role, record.content, record.timestamp, record.metadata, record.id)


def decode_all(raws: Sequence[bytes]) -> list[Message | Damaged]:
    """`decode` for a whole history. Nearly always all of it is intact and of the current version: this is checked, and
    decoded, in one call each."""
    if len(raws) >= DECODED_TOGETHER_LEAST:
        try:
            together = decode_joined(b"".join(raws), len(raws))
        except TypeError:  # one of them is not even bytes
            together = None
        if together is not None:
            return together
    return [decode(raw) for raw in raws]


def decode_joined(joined: bytes, count: int) -> list[Message | Damaged] | None:
    """So many records, one after the other; None if they have to be looked at one by one."""
    if not all_intact(joined):
        return None
    try:
        messages: list[Message | Damaged] = _decode_lines(joined)
    except _NOT_CURRENT:
        return None
    return messages if len(messages) == count else None


def _not_bytes(found: object) -> Damaged:
    """Somebody else wrote it: engines return a number, text or NULL where one was stored."""
    kind = "nothing (NULL)" if found is None else f"a value of type {type(found).__name__}"
    raw = b"" if found is None else str(found).encode("utf-8", "surrogateescape")
    return Damaged(raw, f"the bytes of a record belong here, and the engine holds {kind}")


def _changed(raw: bytes) -> Damaged:
    return Damaged(raw, "its checksum is wrong: these are not the bytes that were written")


def _decode_other(raw: bytes) -> Message | Damaged:
    """Another version, an unknown field, a lone surrogate, or damage: the slow path finds out which."""
    try:
        return _decode_any(raw)
    except (ValueError, TypeError, RecursionError, KeyError, OverflowError) as error:
        return Damaged(raw, f"{type(error).__name__}: {error}")


_NOT_CURRENT = (msgspec.MsgspecError, ValueError, RecursionError)


class _CurrentRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record of the current version, for fast encoding and decoding. Version 1 had the same fields."""

    v: Annotated[int, msgspec.Meta(ge=1, le=SCHEMA)]
    id: str
    role: str
    content: str | list[Json]
    timestamp: float
    metadata: dict[str, Json]


_encode_json = msgspec.json.Encoder().encode
_decode_current = msgspec.json.Decoder(_CurrentRecord).decode
_decode_lines = cast(Callable[[bytes], list[Message | Damaged]], msgspec.json.Decoder(Message).decode_lines)
"""Straight to messages of this version, if all have checksums: we wrote them, with every field, so no default stands in
for one. JSON needs nothing between two objects, and white space may be there."""


def _encode_known(message: Message) -> bytes:
    return _encode_json(
        _CurrentRecord(
            max(message.schema, SCHEMA),
            message.id,
            message.role,
            message.content,
            message.timestamp,
            message.metadata,
        )
    )


def _as_mapping(message: Message) -> dict[str, Json]:
    return {
        "v": max(message.schema, SCHEMA),
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "timestamp": message.timestamp,
        "metadata": message.metadata,
        **message.extra,
    }


# ---- what may be written


def _check(message: Message) -> None:
    """Refuses what would come back different, and what does not fit, before any of it is encoded."""
    check_text(message.role, "role")
    check_text(message.id, "id")
    _check_timestamp(message.timestamp)
    if type(message.schema) is not int or not 1 <= message.schema <= INTEGER_MAX:
        raise Refused(f"schema: the version of a record, 1 or above; not {shown(message.schema)}")
    if not isinstance(message.metadata, dict) or not isinstance(message.extra, dict):
        raise Refused("metadata and extra: mappings of text to JSON")
    size = len(message.role) + len(message.id)
    if isinstance(message.content, list):
        size += check_json(message.content, "content", RECORD_BYTES_MAX)
    else:
        if not isinstance(message.content, str):
            raise Refused(f"content: text or a list of JSON blocks, not {kind_of(message.content)}")
        check_text(message.content, "content")
        size += len(message.content)
    if message.metadata:
        size += check_json(message.metadata, "metadata", RECORD_BYTES_MAX)
    if message.extra:
        if overlap := _KNOWN_FIELDS & message.extra.keys():
            raise Refused(f"extra: {sorted(overlap)} have fields of their own in Message")
        size += check_json(message.extra, "extra", RECORD_BYTES_MAX)
    if size > RECORD_BYTES_MAX:
        raise _too_large(message, size)


def _check_timestamp(value: object) -> None:
    if type(value) is float:
        if not math.isfinite(value):
            raise Refused(f"timestamp: {value} is not a time; use epoch seconds")
    elif type(value) is not int:
        raise Refused(f"timestamp: epoch seconds as a number, not {shown(value)}")
    elif value.bit_length() > 1_000 or float(value) != value:
        raise Refused(f"timestamp: {shown(value)} does not fit in a float; use epoch seconds")


def _too_large(message: Message, size: int) -> Refused:
    return Refused(
        f"message {shorten(message.id)}: {size:,} bytes or more; at most {RECORD_BYTES_MAX:,} fit in one record"
    )


_KNOWN_FIELDS = frozenset(_CurrentRecord.__struct_fields__) | {_NO_FIELD}


# ---- what may be read


def _decode_any(raw: bytes) -> Message:
    record = _parse(raw)
    if isinstance(record, str):
        record = {"content": record}
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, found {type(record).__name__}")
    version = record.get("v", 0)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise ValueError(f"record version {version!r} is not a number")
    for step in range(version, SCHEMA):
        record = UPCASTERS[step](record)
    fields = dict(record)
    return Message(
        role=_text(fields.pop("role"), "role"),
        content=_content(fields.pop("content")),
        timestamp=_number(fields.pop("timestamp"), "timestamp"),
        metadata=_mapping(fields.pop("metadata"), "metadata"),
        id=_text(fields.pop("id"), "id"),
        schema=fields.pop("v"),
        extra=fields,
    )


def _parse(raw: bytes) -> Json:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # A number beyond the range of a float would become infinity here, so it is refused like NaN.
        return json.loads(raw, parse_constant=_refuse_constant, parse_float=_finite)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"number out of range: {digits}")
    return number


def _text(value: Json, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, expected text")
    return value


def _content(value: Json) -> str | list[Json]:
    if not isinstance(value, str | list):
        raise ValueError(f"content is {type(value).__name__}, expected text or a list of blocks")
    return value


def _number(value: Json, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, expected a number")
    return float(value)


def _mapping(value: Json, name: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}, expected an object")
    return value


# ---- version 0: what other tools have left in people's databases


def _lift_unversioned(record: dict[str, Json]) -> dict[str, Json]:
    """Version 0 → 1: finds out which tool wrote it. The id is derived from the record, so every read gives the same."""
    if "data" in record and "type" in record:
        lifted = _lift_langchain(record)
    elif "content" in record:
        lifted = _lift_bare(record)
    else:
        lifted = _lift_item(record)
    return {"v": 1, **lifted}


def _lift_bare(record: Mapping[str, Json]) -> dict[str, Json]:
    """``{"role", "content", "timestamp"}`` with epoch or ISO time, or an OpenAI chat message with tool calls."""
    fields = dict(record)
    fields.pop("v", None)
    content = fields.pop("content")
    calls = fields.pop("tool_calls", None)
    if calls:
        blocks = [{"type": "text", "text": content}] if content else []
        content = [*blocks, *calls]
    return {
        "id": _stable_id(record, fields.pop("id", None)),
        "role": fields.pop("role", "user"),
        "content": content if isinstance(content, str | list) else ("" if content is None else [content]),
        "timestamp": _epoch(fields.pop("timestamp", None) or fields.pop("created_at", None)),
        "metadata": _pop_metadata(fields),
        **fields,
    }


def _lift_item(record: Mapping[str, Json]) -> dict[str, Json]:
    """An OpenAI Agents item without content (a function call, its output, reasoning): the item is the block."""
    kind = record.get("type")
    if not isinstance(kind, str):
        raise ValueError(f"no known shape: fields {sorted(record)[:8]}")
    return {
        "id": _stable_id(record, record.get("id")),
        "role": "tool" if kind.endswith("_output") else "assistant",
        "content": [dict(record)],
        "timestamp": 0.0,
        "metadata": {},
    }


_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant"}


def _lift_langchain(record: Mapping[str, Json]) -> dict[str, Json]:
    """LangChain's ``{"type": "human", "data": {"content", …}}``."""
    data = dict(_mapping(record["data"], "data"))
    kind = _text(record["type"], "type")
    lifted = _lift_bare({**data, "role": data.get("role", _LANGCHAIN_ROLES.get(kind, kind))})
    lifted["id"] = _stable_id(record, data.get("id"))
    return lifted


def _pop_metadata(fields: dict[str, Json]) -> dict[str, Json]:
    metadata = fields.pop("metadata", None)
    return metadata if isinstance(metadata, dict) else {}


def _stable_id(record: Mapping[str, Json], given: Json) -> str:
    if isinstance(given, str) and given:
        return given
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return f"lifted-{_fingerprint(canonical.encode())}"


def _fingerprint(data: bytes) -> str:
    from hashlib import blake2b  # only records of other tools need it

    return blake2b(data, digest_size=12).hexdigest()


def _epoch(value: Json) -> float:
    """Epoch seconds from epoch seconds, milliseconds, or ISO text; 0 if a record has no time."""
    if value is None:
        return 0.0
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    number = _number(value, "timestamp")
    return number / 1000 if number > 1e11 else number  # 1e11 seconds is the year 5138


def _text_of(said: Json, depth: int) -> str:
    """The text of a message's content or of a block: its own, or that of a message inside it."""
    if isinstance(said, str):
        return said
    if depth > TEXT_DEPTH_MAX:
        return ""
    if isinstance(said, list):
        return "\n".join(text for block in said if (text := _text_of(block, depth + 1)))
    if not isinstance(said, dict):
        return ""
    if isinstance(said.get("text"), str):
        return str(said["text"])
    for name in _TEXT_FIELDS:
        # As text, `data` is bytes in base64: an image, a sound.
        if isinstance(said.get(name), (list | dict) if name == "data" else (str | list | dict)):
            return _text_of(said[name], depth + 1)
    return ""


_TEXT_FIELDS = (
    "content",  # OpenAI's and most others'
    "data",  # LangChain's two shapes
    "kwargs",
    "parts",  # Google's
    "contents",  # Microsoft's
    "output",  # a tool's, in OpenAI's Responses API
    "summary",  # of reasoning, in the same API
    "refusal",  # OpenAI's, where an answer would be
    "function_response",  # a tool's, in Google's
    "response",
    "code_execution_result",
    "result",  # a tool's, in Microsoft's and in ADK's response
)
"""Where another library's message may have its text, in the order they are tried."""


def _lift_unchecked(record: dict[str, Json]) -> dict[str, Json]:
    """Version 1 → 2: the same fields, without a checksum after them."""
    return {**record, "v": 2}


UPCASTERS: dict[int, Callable[[dict[str, Json]], dict[str, Json]]] = {
    0: _lift_unversioned,
    1: _lift_unchecked,
}
