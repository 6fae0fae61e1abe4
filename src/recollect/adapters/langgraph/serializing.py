"""LangGraph's serializer, with a shorter way for the chat messages of LangChain, which most of a state is made of.

It writes the same bytes and reads the same values as `JsonPlusSerializer`, which does everything else. For each message
that one looks for six methods when it writes, and imports the message's module when it reads: a third of what a step of
a thread costs. Here the classes are known.

Only classes that LangGraph's serializer reads in its strict mode too may be in `KINDS`, because what it may read is
not asked here.
"""

from collections.abc import Callable
from typing import Any

from langchain_core import messages
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2, JsonPlusSerializer
from ormsgpack import (
    OPT_NON_STR_KEYS,
    OPT_PASSTHROUGH_DATACLASS,
    OPT_PASSTHROUGH_DATETIME,
    OPT_PASSTHROUGH_ENUM,
    OPT_PASSTHROUGH_UUID,
    OPT_REPLACE_SURROGATES,
    Ext,
    MsgpackEncodeError,
    packb,
    unpackb,
)
from pydantic import BaseModel

from recollect.adapters.message_classes import made

KINDS: dict[tuple[str, str], type[BaseModel]] = {
    (kind.__module__, kind.__name__): kind
    for kind in (
        messages.HumanMessage,
        messages.AIMessage,
        messages.SystemMessage,
        messages.ToolMessage,
        messages.HumanMessageChunk,
        messages.AIMessageChunk,
        messages.SystemMessageChunk,
        messages.ToolMessageChunk,
    )
    if kind.model_dump is BaseModel.model_dump
}
_PLAIN = (
    OPT_NON_STR_KEYS
    | OPT_PASSTHROUGH_DATACLASS
    | OPT_PASSTHROUGH_DATETIME
    | OPT_PASSTHROUGH_ENUM
    | OPT_PASSTHROUGH_UUID
    | OPT_REPLACE_SURROGATES
)
"""As LangGraph's serializer has it: what ormsgpack could write in a way of its own goes there."""
_SHAPED = ("tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_chunks")
"""Fields of a certain form, which `model_dump` leaves other keys out of. It passes on the others as they are."""


Write = Callable[[Any], tuple[str, bytes]]


def _packer(kind: type[BaseModel]) -> Callable[[Any, Write], Ext]:
    """How messages of this kind are written. Called for each message of a state at every step: what is known of the
    kind is looked up once."""
    module, name = kind.__module__, kind.__name__
    dump = kind.__pydantic_serializer__.to_python  # as `model_dump`, without its arguments
    fields = len(kind.model_fields)
    shaped = tuple(field for field in _SHAPED if field in kind.model_fields)

    def packed(message: Any, write: Write) -> Ext:
        kept = message.__dict__
        if len(kept) != fields or message.__pydantic_extra__ or (shaped and any(map(kept.get, shaped))):
            kept = dump(message)
        try:
            return Ext(EXT_PYDANTIC_V2, packb((module, name, kept, "model_validate_json"), option=_PLAIN))
        except MsgpackEncodeError:  # more than texts, numbers, lists and mappings
            form, data = write((module, name, dump(message), "model_validate_json"))
        if form != "msgpack":
            raise ValueError(form)
        return Ext(EXT_PYDANTIC_V2, data)

    return packed


_PACKERS = {kind: _packer(kind) for kind in KINDS.values()}


class MessageSerializer(JsonPlusSerializer):
    """See the module."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        write: Write = super().dumps_typed
        if type(obj) is list:
            packer = _PACKERS.get
            try:
                return write([pack(one, write) if (pack := packer(type(one))) else one for one in obj])
            except Exception:
                # Fields that do not fit, or a list that only pickle can write: that is told, or done, there.
                pass
        return write(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, raw = data
        if kind != "msgpack":
            return super().loads_typed(data)
        return unpackb(raw, ext_hook=_reviving(self._unpack_ext_hook), option=OPT_NON_STR_KEYS)


def _reviving(otherwise: Callable[[int, bytes], Any]) -> Callable[[int, bytes], Any]:
    def revived(code: int, data: bytes) -> Any:
        if code == EXT_PYDANTIC_V2:
            try:
                packed = unpackb(data, ext_hook=revived, option=OPT_NON_STR_KEYS)
                if (kind := KINDS.get((packed[0], packed[1]))) is not None:
                    return made(kind, packed[2])
            except Exception:  # fields that do not fit: the serializer has its own way with them
                pass
        return otherwise(code, data)

    return revived
