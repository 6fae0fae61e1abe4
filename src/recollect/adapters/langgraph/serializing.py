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
from ormsgpack import OPT_NON_STR_KEYS, Ext, unpackb
from pydantic import BaseModel

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
_KNOWN = frozenset(KINDS.values())


class MessageSerializer(JsonPlusSerializer):
    """See the module."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if type(obj) is not list:
            return self._written(obj)
        try:
            return self._written([self._packed(one) if type(one) in _KNOWN else one for one in obj])
        except Exception:
            # Fields that do not fit, or a list that only pickle can write: that is told, or done, there.
            return self._written(obj)

    def _written(self, obj: Any) -> tuple[str, bytes]:
        written: tuple[str, bytes] = super().dumps_typed(obj)
        return written

    def _packed(self, message: BaseModel) -> Ext:
        kind = type(message)
        # As `model_dump` does, without its arguments.
        fields = kind.__pydantic_serializer__.to_python(message)
        form, data = self._written((kind.__module__, kind.__name__, fields, "model_validate_json"))
        if form != "msgpack":
            raise ValueError(form)
        return Ext(EXT_PYDANTIC_V2, data)

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
                    return kind(**packed[2])
            except Exception:  # fields that do not fit: the serializer has its own way with them
                pass
        return otherwise(code, data)

    return revived
