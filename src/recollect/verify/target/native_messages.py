"""The message classes of frameworks, for stores that take nothing else.

Each makes a framework's message from a role and a text, and reads back what became of it. `kinds` are those that are
made here: texts, and the roles that the class has; what the class has a place for beyond that is not tried.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from recollect.verify.target.contents import TEXTS, spoken
from recollect.verify.target.interfaces import (
    Difference,
    Interface,
    LangChainMessages,
    OpenMapping,
    as_spoken,
    compared,
)
from recollect.verify.target.pipe import Said

ANY_ROLE = frozenset({"system", "developer", "observer"})


def belongs_to(kind: Any, package: str) -> bool:
    """Whether a class is the package's own."""
    return inspect.isclass(kind) and f"{kind.__module__}.".startswith(f"{package}.")


class _RoleAndText:
    """A framework's message that is a role and a text here."""

    kinds = TEXTS

    def make(self, one: Said) -> Any:
        role, content, _ = as_spoken(one)
        return self.native(role, content)

    def native(self, role: str, text: Any) -> Any:
        raise NotImplementedError

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        return compared(spoken(number, kind), raw, named=False)


class LlamaIndexMessages(_RoleAndText):
    """`ChatMessage` of LlamaIndex; tool calls and names are in its additional arguments."""

    kinds = TEXTS | {"system", "developer", "call", "tool", "named"}

    def make(self, one: Said) -> Any:
        from llama_index.core.llms import ChatMessage  # the target's own dependency

        role, content, fields = as_spoken(one)
        return ChatMessage(role=role, content=content, additional_kwargs=dict(fields))

    def difference(self, number: int, kind: str, raw: Any) -> Difference | None:
        fields = getattr(raw, "additional_kwargs", None)
        seen = {"role": str(getattr(raw.role, "value", raw.role)), "content": raw.content, **(fields or {})}
        return compared(spoken(number, kind), seen, named=True)


class AgentFrameworkMessages(_RoleAndText):
    """`Message` of Microsoft's Agent Framework."""

    kinds = TEXTS | ANY_ROLE

    def native(self, role: str, text: Any) -> Any:
        from agent_framework import Message  # the target's own dependency

        return Message(role, [text])


class AdkEvents(_RoleAndText):
    """`Event` of Google's ADK. Its author is the role: those of its content are `user` and `model` only."""

    kinds = TEXTS | ANY_ROLE

    def native(self, role: str, text: Any) -> Any:
        from google.adk.events import Event  # the target's own dependency
        from google.genai.types import Content, Part

        spoken_by = "user" if role == "user" else "model"
        return Event(author=role, content=Content(role=spoken_by, parts=[Part(text=text)]))

    @staticmethod
    def as_mapping(event: Any) -> dict[str, str]:
        parts = (event.content.parts if event.content is not None else None) or ()
        return {"role": event.author, "content": "".join(part.text or "" for part in parts)}


class StrandsMessages(_RoleAndText):
    """A message of Strands Agents: a role, which is `user` or `assistant`, and blocks."""

    def native(self, role: str, text: Any) -> dict[str, Any]:
        return {"role": role, "content": [{"text": text}]}

    @staticmethod
    def as_mapping(message: Mapping[str, Any]) -> dict[str, str]:
        return {
            "role": message["role"],
            "content": "".join(block.get("text", "") for block in message["content"]),
        }


class PydanticMessages(_RoleAndText):
    """Requests and responses of Pydantic AI."""

    kinds = TEXTS | {"system"}

    def native(self, role: str, text: Any) -> Any:
        from pydantic_ai import messages  # the target's own dependency

        if role == "assistant":
            return messages.ModelResponse(parts=[messages.TextPart(content=text)])
        kind = messages.SystemPromptPart if role == "system" else messages.UserPromptPart
        return messages.ModelRequest(parts=[kind(content=text)])

    @staticmethod
    def as_mapping(message: Any) -> dict[str, str]:
        role = "assistant" if message.kind == "response" else "user"
        if role == "user" and message.parts and message.parts[0].part_kind == "system-prompt":
            role = "system"
        return {"role": role, "content": "".join(str(part.content) for part in message.parts)}


class NumberedTexts(_RoleAndText):
    """A text for a vector memory, with its number beside it: such a memory has no order of its own."""

    def make(self, one: Said) -> OpenMapping:
        return OpenMapping(content=as_spoken(one).content, n=one.number)


NATIVE: dict[str, Interface] = {
    "langchain_core": LangChainMessages(),
    "llama_index": LlamaIndexMessages(),
    "agent_framework": AgentFrameworkMessages(),
}
"""By the package of the class that a store's write method is annotated with."""


def native_interface(annotation: Any) -> Interface | None:
    """How messages of this class are made; None if the class is no framework's."""
    return next((made for package, made in NATIVE.items() if belongs_to(annotation, package)), None)
