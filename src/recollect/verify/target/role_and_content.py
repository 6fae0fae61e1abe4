"""Writes whose arguments are the message: `add_message(session, role, content)`.

A parameter's name says what it is, and the order is the store's own. The one other parameter that has no default is the
session, whatever it is called; parameters named like a field of a message get that field. Everything is given by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from recollect.verify.target.interfaces import RoleAndContent, parameters

ROLES = ("role", "sender", "speaker", "author", "who")
CONTENTS = ("content", "text", "message", "msg", "body")
SESSIONS = ("session", "conversation", "thread", "chat", "user")
"""How the name of a session's parameter begins, if it has a default."""
FIELDS = ("name", "tool_call_id", "metadata", "tool_calls")
NO_TEXTS = FIELDS[2:]


class Arguments(NamedTuple):
    """Which parameter is what; no `session` if there is a store for each."""

    session: inspect.Parameter | None
    role: inspect.Parameter
    content: inspect.Parameter
    fields: tuple[inspect.Parameter, ...]

    def given(self, session: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """What the method is called with."""
        named = {"role": self.role.name, "content": self.content.name}
        arguments = {named.get(name, name): value for name, value in message.items()}
        return arguments if self.session is None else {self.session.name: session, **arguments}

    @property
    def interface(self) -> RoleAndContent:
        types = {one.name: _type_of(one) for one in self.fields}
        return RoleAndContent({"role": _type_of(self.role), "content": _type_of(self.content, str), **types})


def speaks(method: Any) -> bool:
    """Whether it takes a role and a text, whatever else it takes."""
    taken = parameters(method).keys()
    return not taken.isdisjoint(ROLES) and not taken.isdisjoint(CONTENTS)


def arguments_of(method: Any, *, keyed: bool) -> Arguments | None:
    """None if it takes anything else; `keyed` means that a session is among its arguments."""
    taken = {name: one for name, one in parameters(method).items() if _by_name(one)}
    role = next((taken.pop(name) for name in ROLES if name in taken), None)
    content = next((taken.pop(name) for name in CONTENTS if name in taken), None)
    if role is None or content is None:
        return None
    fields = tuple(one for one in taken.values() if _takes_field(one))
    required = [one for one in taken.values() if one.default is one.empty and one not in fields]
    session = next((one for one in taken.values() if one.name.startswith(SESSIONS)), None)
    if keyed and required:
        session = required.pop()
    if required or (keyed and session is None):
        return None
    return Arguments(session if keyed else None, role, content, fields)


def _takes_field(parameter: inspect.Parameter) -> bool:
    types = (parameter.annotation, *get_args(parameter.annotation))
    return parameter.name in FIELDS and not (parameter.name in NO_TEXTS and str in types)


def _by_name(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _type_of(parameter: inspect.Parameter, usual: Any = Any) -> Any:
    return usual if parameter.annotation in (parameter.empty, Any) else parameter.annotation
