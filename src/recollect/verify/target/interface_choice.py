"""Which interface a store has: by its shape, or by what its write method says that it takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_args, get_origin, is_typeddict

from recollect.verify.target.interfaces import (
    AgentItems,
    Interface,
    LangChainMessages,
    Mappings,
    OurMessages,
    OwnClass,
    Texts,
    parameters,
)
from recollect.verify.target.native_messages import native_interface


def interface_of(shape: str, write: Mapping[str, inspect.Parameter]) -> Interface:
    """The interface of a store of this shape, whose write method has these parameters."""
    if shape == "add_messages/messages":
        return LangChainMessages()
    if shape == "add_items/get_items":
        return AgentItems()
    annotation = next(
        (p.annotation for name, p in write.items() if name.startswith(("message", "msg", "item", "event"))),
        None,
    )
    if get_origin(annotation) is not None and len(get_args(annotation)) == 1:
        annotation = get_args(annotation)[0]  # list[Turn]
    if shape == "append/history" and not _says_mappings(annotation):
        return OurMessages()
    if (native := native_interface(annotation)) is not None:
        return native
    if annotation is str:
        return Texts()
    if is_typeddict(annotation):
        return Mappings(annotation)
    if inspect.isclass(annotation) and {"content", "text"} & parameters(annotation).keys():
        return OwnClass(annotation)
    return Mappings()


def _says_mappings(annotation: Any) -> bool:
    """Whether it is `dict`, `dict[str, Any]`, `Mapping` or a `TypedDict`; not if it is our `Message` or nothing."""
    named = get_origin(annotation) or annotation
    return is_typeddict(named) or (inspect.isclass(named) and issubclass(named, Mapping))
