"""Messages as the dictionaries that other libraries use, both ways, without importing any of them.

A plain OpenAI message (a role and a text) is a plain message here. Everything else is kept whole, as the one block of
the content, with its role and id beside it: what came in goes out again, whatever fields it has. `SHAPE` in the
metadata says which library's dictionary it is. Converting one library's message for another keeps what both know: role,
content, and tool calls.
"""

import json
from collections.abc import Mapping
from typing import Any

from recollect.errors import Refused, shown
from recollect.message import Message, new_id

SHAPE = "shape"
"""The key of a message's metadata; its value is `OPENAI` or `LANGCHAIN`."""
OPENAI = "openai"
LANGCHAIN = "langchain"

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function"}
_TYPES = {role: kind for kind, role in _ROLES.items()}
_CLASSES = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}
"""How LangChain's serialized messages name themselves; those of a stream end in "Chunk"."""


def as_message(value: object) -> Message | None:
    """A message, or a dictionary of a known shape as a message; None for anything else."""
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("data"), Mapping) or "lc" in value:
        return from_langchain(value)
    return from_openai(value)


def from_openai(item: Mapping[str, Any]) -> Message:
    """A chat message, or an item of the Responses API or the Agents SDK."""
    if not isinstance(item, Mapping):
        raise Refused(f"an OpenAI message is a dictionary with a 'role' or a 'type'; not {shown(item)}")
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str) and isinstance(item.get("content"), str) and set(item) == {"role", "content"}:
        return Message(role, item["content"])
    if not isinstance(role, str):
        if kind is None and isinstance(item.get("id"), str):
            kind = "item_reference"  # the API lets a reference leave out its type
        if not isinstance(kind, str):
            raise Refused(
                f"an OpenAI message has a 'role' or a 'type', both text; not {shown(role)} and {shown(kind)}"
            )
        role = "tool" if kind.endswith("_output") else "assistant"
    return _kept(role, item, OPENAI, item.get("id"))


def to_openai(message: Message) -> dict[str, Any]:
    """The dictionary that `from_openai` was given; other messages become a chat message."""
    native = _native(message)
    if native is not None and message.metadata.get(SHAPE) == OPENAI:
        return native
    if native is None:
        return {"role": message.role, "content": message.content}
    data = _langchain_data(native)
    made: dict[str, Any] = {"role": message.role, "content": data.get("content", "")}
    calls = data.get("tool_calls")
    if isinstance(calls, list) and calls:
        made["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call.get("name"), "arguments": json.dumps(call.get("args", {}))},
            }
            for call in calls
            if isinstance(call, Mapping)
        ]
    if isinstance(data.get("tool_call_id"), str):
        made["tool_call_id"] = data["tool_call_id"]
    return made


def from_langchain(serialized: Mapping[str, Any]) -> Message:
    """What LangChain's `message_to_dict` or `dumpd` gives."""
    if not isinstance(serialized, Mapping):
        raise Refused(_NOT_LANGCHAIN)
    kind = _langchain_kind(serialized)
    data = _langchain_data(serialized)
    role = data.get("role") if kind == "chat" else _ROLES.get(kind, kind)
    if not isinstance(role, str):
        raise Refused(f"role: text, not {shown(role)}")
    return _kept(role, serialized, LANGCHAIN, data.get("id"))


def to_langchain(message: Message) -> dict[str, Any]:
    """The dictionary that `from_langchain` was given; other messages become what `messages_from_dict` takes."""
    native = _native(message)
    if native is not None and message.metadata.get(SHAPE) == LANGCHAIN:
        return native
    kind = _TYPES.get(message.role, "chat")
    data: dict[str, Any] = {"content": message.content, "type": kind, "id": message.id}
    if kind == "chat":
        data["role"] = message.role
    if native is not None:
        data["content"] = native.get("content") or ""
        calls = native.get("tool_calls")
        if isinstance(calls, list) and calls:
            data["tool_calls"] = [_langchain_call(call) for call in calls if isinstance(call, Mapping)]
        if isinstance(native.get("tool_call_id"), str):
            data["tool_call_id"] = native["tool_call_id"]
    return {"type": kind, "data": data}


def _langchain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    told: Mapping[str, Any] = function if isinstance(function, Mapping) else {}
    try:
        arguments = json.loads(told.get("arguments") or "{}")
    except (TypeError, ValueError):
        arguments = {"arguments": told.get("arguments")}
    return {"name": told.get("name"), "args": arguments, "id": call.get("id"), "type": "tool_call"}


def _kept(role: str, native: Mapping[str, Any], shape: str, given: object) -> Message:
    named = given if isinstance(given, str) and given else new_id()
    return Message(role, [dict(native)], metadata={SHAPE: shape}, id=named)


def _native(message: Message) -> dict[str, Any] | None:
    """The dictionary that a message was made from."""
    content = message.content
    if message.metadata.get(SHAPE) not in (OPENAI, LANGCHAIN) or not isinstance(content, list):
        return None
    return dict(content[0]) if len(content) == 1 and isinstance(content[0], dict) else None


def _langchain_data(serialized: Mapping[str, Any]) -> Mapping[str, Any]:
    data = serialized.get("kwargs" if "lc" in serialized else "data")
    return data if isinstance(data, Mapping) else {}


def _langchain_kind(serialized: Mapping[str, Any]) -> str:
    """human, ai, system, tool, chat, …"""
    if "lc" in serialized:
        path = serialized.get("id")
        name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else ""
        if name.removesuffix("Chunk") in _CLASSES:
            return _CLASSES[name.removesuffix("Chunk")]
    elif isinstance(serialized.get("type"), str) and isinstance(serialized.get("data"), Mapping):
        return str(serialized["type"]).removesuffix("MessageChunk").lower()
    raise Refused(_NOT_LANGCHAIN)


_NOT_LANGCHAIN = (
    "not a LangChain message: {'type': 'human', 'data': {…}}, or what its dumpd gives, belongs here"
)
