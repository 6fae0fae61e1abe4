"""Which interface a store has: by its shape, by what its write method says, or by what it was seen to take.

An `append(session, messages)` without a type says nothing: before the run it is tried with one of `FORMS` after the
other (`form_trial`).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

from recollect.message import Message
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

Form = Literal["", "recollect.Message", "mappings", "text"]
"""Empty: nobody had to try, or nobody did."""
OURS: Form = "recollect.Message"
TEXT: Form = "text"
FORMS: dict[Form, type[OurMessages | Mappings | Texts]] = {
    OURS: OurMessages,
    "mappings": Mappings,
    TEXT: Texts,
}
"""The forms that a store is tried with, in this order; reports call them by these names."""
FORM = "form:"
"""Prefix of the ability that names the form a store was seen to take."""
TRIED = ("append/history", "append/history of one message")
"""The shapes whose messages have no usual form."""
ONE = frozenset({"message", "msg", "item", "event", "entry", "text", "content"})
"""What the parameter is called that takes one message, if it has no type."""


def form_in(abilities: Collection[str]) -> Form:
    """The form that the store was seen to take."""
    return next((form for form in FORMS if f"{FORM}{form}" in abilities), "")


def is_open(shape: str, write: Mapping[str, inspect.Parameter]) -> bool:
    """Whether neither its shape nor its write method says in which form a store takes messages."""
    return shape in TRIED and _said(write) is None


def interface_of(shape: str, write: Mapping[str, inspect.Parameter], form: Form = "") -> Interface:
    """The interface of a store of this shape, whose write method has these parameters; `form` counts if they say
    nothing."""
    if shape == "add_items/get_items":
        return AgentItems()
    if (said := _said(write)) is not None:
        return said
    if shape == "add_messages/messages" and find_spec("langchain_core") is not None:
        return LangChainMessages()
    return FORMS[form or OURS]() if shape in TRIED else Mappings()


def _said(write: Mapping[str, inspect.Parameter]) -> Interface | None:
    """What the annotation of the messages says; None if there is none, or it can be anything."""
    annotation: Any = next(
        (
            p.annotation
            for name, p in write.items()
            if name in ONE or name.startswith(("message", "msg", "item", "event"))
        ),
        None,
    )
    if get_origin(annotation) is not None and len(get_args(annotation)) == 1:
        annotation = get_args(annotation)[0]  # list[Turn]
    if any(_is_class_of(one, Message) for one in (annotation, *get_args(annotation))):
        return OurMessages()
    if (native := native_interface(annotation)) is not None:
        return native
    if annotation is str:
        return Texts()
    if is_typeddict(annotation):
        return Mappings(annotation)
    if _is_class_of(get_origin(annotation) or annotation, Mapping):
        return Mappings()
    return OwnClass(annotation) if _is_a_message(annotation) else None


def takes_one_message(write: Any, *, keyed: bool = True) -> bool:
    """Whether a method (session, messages) takes one message and not a list of them; not `keyed`: (messages)."""
    taken = list(parameters(write).values())[int(keyed) :]
    return bool(taken) and taken[0].kind is not taken[0].VAR_POSITIONAL and _is_one(taken[0])


def _is_one(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    either = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    for kind in (get_origin(one) or one for one in either):
        if kind is str or _is_class_of(kind, Mapping) or _is_a_message(kind):
            return True
        if _is_class_of(kind, Iterable):
            return False
    return parameter.name in ONE


def _is_a_message(kind: Any) -> bool:
    """Whether it is a class whose objects have a content."""
    return inspect.isclass(kind) and bool({"content", "text"} & parameters(kind).keys())


def _is_class_of(thing: Any, base: type) -> bool:
    return inspect.isclass(thing) and issubclass(thing, base)
