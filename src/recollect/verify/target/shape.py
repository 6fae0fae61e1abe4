"""Shapes: how a store is written to and read, recognised by its methods and by what they take.

`SHAPES` is the table; to support another shape, add a row. A name alone proves nothing (`save(session, messages)` and
`save(conversation)` are different things), so a method has to accept the arguments that the row would call it with, and
what stands in the session's place has to be able to be a text. Rows with `drive` are stores that are used in several
steps; see `driving`.
"""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from recollect.verify.target.driving import Driven
from recollect.verify.target.driving.checkpoints import Checkpoints
from recollect.verify.target.driving.conversations import Conversations
from recollect.verify.target.driving.events import Events
from recollect.verify.target.driving.repositories import Repository
from recollect.verify.target.driving.vectors import Vectors, VectorsOfSession
from recollect.verify.target.interface_choice import takes_one_message
from recollect.verify.target.interfaces import parameters
from recollect.verify.target.read_limits import LIMITS, is_budget
from recollect.verify.target.role_and_content import arguments_of, speaks


class BadTarget(Exception):
    """The target cannot be used; the message is one sentence for the person who named it."""


_MANAGERS = (contextlib.AbstractContextManager, contextlib.AbstractAsyncContextManager)
ADDS = (
    "append", "save_message", "log_message", "store_message", "insert_message", "write_message", "put_message",
    "record_message", "push_message", "post_message", "add_turn", "append_turn", "save_turn", "add", "log", "push",
    "insert", "record", "remember", "say",
)  # fmt: skip
"""What a method is called that adds one message, if its parameters say that it takes one."""
WRITES = (*ADDS, "add_message", "append_message", "create_message", "save", "store", "write", "put")
"""The same for a role and a text, which cannot be anything but a message."""
READS = (
    "history", "get_history", "get_messages", "messages", "list_messages", "load_messages", "read_messages",
    "fetch_messages", "load_history", "read_history", "fetch_history", "get_chat_history", "chat_history",
    "get_conversation_history", "load", "read", "recent", "get_recent", "recent_messages", "get_recent_messages",
    "get_last_messages", "last_messages", "get_turns", "turns", "transcript", "get_transcript", "get_all", "all",
    "fetch", "recall", "replay", "get", "list", "last",
)  # fmt: skip


class Shape(NamedTuple):
    """How a store is written to and read."""

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    per_session: bool
    whole_list: bool
    batches: bool
    origin: str
    drive: type[Driven] | None = None
    """Makes what is driven instead of the store, with `append` and `history`."""
    write_takes: int | None = None
    """How many arguments a write is called with; None means the session, unless there is a store for each, and the
    messages."""
    read_takes: int | tuple[str, ...] | None = None
    """The same for a read, or the names of its arguments."""
    takes_one: bool | None = None
    """Whether a write takes one message, as its parameter says; None: the method's name says it."""
    apart: bool = False
    """Whether a write takes the message's role and content as two arguments."""

    @property
    def driven(self) -> Shape:
        """The shape of what `drive` makes."""
        return self if self.drive is None else self._replace(writes=("append",), reads=("history",))

    def fits(self, store: Any, per_session: bool) -> bool:
        return self.named_by(store, per_session) and not self.misfits(store)

    def named_by(self, store: Any, per_session: bool) -> bool:
        """Whether the store has methods of these names."""
        return per_session == self.per_session and None not in (self.write_of(store), self.read_of(store))

    def write_of(self, store: Any) -> str | None:
        """The first of the writes that the store has; rather one that takes what it would be called with."""
        found = [name for name in self.writes if _has(store, name)]
        if self.apart:
            found = [name for name in found if _is_method(store, name) and speaks(getattr(store, name))]
        return next((name for name in found if self._writes_by(store, name)), found[0] if found else None)

    def read_of(self, store: Any) -> str | None:
        """The same of the reads."""
        found = [name for name in self.reads if _has(store, name)]
        return next((name for name in found if self._reads_by(store, name)), found[0] if found else None)

    def call_of(self, method: str) -> str:
        """How it would be called."""
        if self.drive is not None:
            return f"in {self.origin}"
        arguments = [] if self.per_session else ["session"]
        if method in self.writes:
            arguments += ["role", "content"] if self.apart else ["messages" if self.batches else "message"]
        return f"{method}({', '.join(arguments)})"

    def misfits(self, store: Any) -> list[str]:
        """The methods that do not take what they would be called with."""
        write, read = self.write_of(store), self.read_of(store)
        knows = self.drive is None or self.drive.knows(store)
        found = []
        if write is not None and not (self._writes_by(store, write) and knows):
            found.append(write)
        if read is not None and not self._reads_by(store, read):
            found.append(read)
        return found

    @property
    def _keyed(self) -> bool:
        return not self.per_session and self.drive is None

    def _writes_by(self, store: Any, name: str) -> bool:
        """Whether this method of the store takes what a write would be called with."""
        if self.apart:
            return _takes_apart(getattr(store, name), keyed=self._keyed)
        given = 1 + (not self.per_session) if self.write_takes is None else self.write_takes
        takes = _takes(store, name, given, keyed=self._keyed)
        if takes and self.takes_one is not None:
            takes = self.takes_one == takes_one_message(getattr(store, name), keyed=not self.per_session)
        return takes

    def _reads_by(self, store: Any, name: str) -> bool:
        given = int(not self.per_session) if self.read_takes is None else self.read_takes
        return _takes(store, name, given, keyed=self._keyed, may_ask=_is_limit)


SHAPES: tuple[Shape, ...] = (
    Shape("append/history", ("append",), READS, False, False, True, "recollect's own", takes_one=False),
    Shape("append(session, role, content)", WRITES, READS, False, False, False,
          "role and content as two arguments, under any usual names", apart=True),
    Shape("append_message/get_history", ("append_message",), READS, False, False, False,
          "append_message(session, message) with get_history(session, limit=…) or get_messages(session)"),
    Shape("save/load", ("save",), ("load",), False, True, True,
          "save(session, messages) of the whole list with load(session)", takes_one=False),
    Shape("save_messages/get_messages", ("save_messages",), READS, False, False, True,
          "save_messages(session, messages), as the histories of Agent Framework"),
    Shape("add_messages/get_messages", ("add_messages",), READS, False, False, True,
          "add_messages(session, messages), as LlamaIndex's chat stores"),
    Shape("add_message/get_messages", ("add_message",), READS, False, False, False,
          "add_message(session, message), as LlamaIndex's chat stores"),
    Shape("create_message/list_messages", ("create_message",), READS, False, False, False,
          "create_message(session, message) with list_messages(session)"),
    Shape("append/history of one message", ADDS, READS, False, False, False,
          "append(session, message) with history(session)", takes_one=True),
    Shape("put/get_tuple", ("put",), ("get_tuple",), False, False, True,
          "LangGraph's checkpoint savers", Checkpoints, 4, 1),
    Shape("append_event/get_session", ("append_event",), ("get_session",), False, False, False,
          "session services of Google's ADK", Events, 2, ("app_name", "user_id", "session_id")),
    Shape("create_message/list_messages of an agent", ("create_message",), ("list_messages",), False, False, False,
          "session repositories of Strands Agents", Repository, 3, 2),
    Shape("save/load of a conversation", ("save",), ("load",), False, False, True,
          "conversation stores of Pydantic AI", Conversations, 1, 1),
    Shape("add_texts/similarity_search", ("add_texts",), ("similarity_search",), False, False, True,
          "LangChain vector stores, with the session as a filter", Vectors, 1, 1),
    Shape("add_messages/messages", ("add_messages",), ("messages", "get_messages"), True, False, True,
          "LangChain chat history, one per session"),
    Shape("add_items/get_items", ("add_items",), ("get_items",), True, False, True,
          "OpenAI Agents SDK session, one per session"),
    Shape("append(role, content)", WRITES, READS, True, False, False,
          "role and content as two arguments, one store per session", apart=True),
    Shape("append(message)", (*ADDS, "add_message", "append_message"), READS, True, False, False,
          "append(message) with history(), one store per session", takes_one=True),
    Shape("add_texts/similarity_search of a session", ("add_texts",), ("similarity_search",), True, False, True,
          "LangChain vector stores, one per session", VectorsOfSession, 1, 1),
)  # fmt: skip


def shape_of(store: Any, spec: str, per_session: bool) -> Shape:
    for shape in SHAPES:
        if shape.fits(store, per_session):
            return shape
    raise BadTarget(f"target {spec!r}: {type(store).__name__} has no known shape. {_why(store, per_session)}")


OTHERWISE = (
    "Write append(session, messages) and history(session) around any other store: docs/write-a-target.md"
)


def _why(store: Any, per_session: bool) -> str:
    """What is wrong with methods that have the right names, or else what was found and what is known."""
    given, other = "factory(endpoint)", "factory(endpoint, session)"
    if store is None:
        return "The factory returned None; it has to return the store"
    if per_session:
        given, other = other, given
    if inspect.isgenerator(store) or isinstance(store, _MANAGERS):
        return "The factory has to return the store itself, which may have close(), and not a context manager"
    for shape in SHAPES:
        if shape.fits(store, not per_session):
            return f"It was made by {given}, and {shape.name} is known of {other}"
    if wrong := _misfits(store, per_session) or _unread(store, per_session):
        return f"{wrong}. {OTHERWISE}"
    found = [name for name in dir(store) if not name.startswith("_") and _is_method(store, name)]
    return (
        f"It has {', '.join(found[:12]) or 'no methods'}. Known of {given}: {_names(per_session)}; of {other}: "
        f"{_names(not per_session)}. {OTHERWISE}"
    )


def _misfits(store: Any, per_session: bool) -> str:
    """The methods that have the right names and take something else; of two shapes with these names, the first is the
    more usual one."""
    named = [shape for shape in SHAPES if shape.named_by(store, per_session)]
    least = min((len(shape.misfits(store)) for shape in named), default=0)
    near = {
        name: _cannot_be_called(store, shape, name)
        for shape in reversed(named)
        if len(shape.misfits(store)) == least
        for name in shape.misfits(store)
    }
    return "; ".join(near.values())


def _unread(store: Any, per_session: bool) -> str:
    """The method that writes, of a store in which none reads."""
    for shape in SHAPES:
        write = shape.write_of(store)
        if write is None or shape.per_session != per_session or shape.drive is not None:
            continue
        read = "history()" if per_session else "history(session) or get_messages(session)"
        if write not in shape.misfits(store):
            return f"{write}{_signature(store, write)} is known, but nothing that reads, such as {read}"
        if shape.apart:
            return f"{_cannot_be_called(store, shape, write)}, and nothing is called {read}"
    return ""


def _cannot_be_called(store: Any, shape: Shape, name: str) -> str:
    return f"{name}{_signature(store, name)} cannot be called as {shape.call_of(name)}"


def _names(per_session: bool) -> str:
    names = (shape.name.partition(" of ")[0] for shape in SHAPES if shape.per_session == per_session)
    return ", ".join(dict.fromkeys(names))


def _is_method(store: Any, name: str) -> bool:
    """Asks the class, because a property can do anything when it is asked for."""
    of_class = inspect.getattr_static(type(store), name, None)
    return not isinstance(of_class, property) and callable(getattr(store, name, None))


def _signature(store: Any, name: str) -> str:
    return (
        str(inspect.signature(getattr(store, name))) if _is_method(store, name) else ", which is no method,"
    )


# ---- what a method takes

NOT_A_SESSION = frozenset({"role", "content", "text", "message", "messages", "item", "items"})
"""Names of a first argument that is something else."""


def _has(store: Any, name: str) -> bool:
    return hasattr(type(store), name) or hasattr(store, name)


def _takes_apart(method: Any, *, keyed: bool) -> bool:
    """Whether it takes role and content as two arguments, and what else it has to be given is a session's id."""
    found = arguments_of(method, keyed=keyed)
    if found is None or not _takes_text(found.content.annotation):
        return False
    return found.session is None or _may_be_a_session(found.session)


def _takes(
    store: Any,
    name: str,
    given: int | tuple[str, ...],
    *,
    keyed: bool,
    may_ask: Callable[[str], bool] = lambda name: False,
) -> bool:
    """Whether the method can be called with this many arguments, or with these names; `keyed` means that the first is
    a session's id. Whatever it asks for by a name that `may_ask` knows, it gets."""
    if isinstance(inspect.getattr_static(type(store), name, None), property):
        return given == 0
    method = getattr(store, name)
    if not callable(method):
        return given == 0
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return True  # no signature to go by: the name has to do
    arguments = [None] * given if isinstance(given, int) else []
    named = {} if isinstance(given, int) else dict.fromkeys(given)
    asked = [
        one.name
        for one in signature.parameters.values()
        if one.default is one.empty and one.kind is not one.POSITIONAL_ONLY
    ]
    named |= dict.fromkeys(name for name in asked[len(arguments) :] if may_ask(name))
    try:
        signature.bind(*arguments, **named)
    except TypeError:
        return False
    first = next(iter(parameters(method).values()), None)
    return not (keyed and first is not None and not _may_be_a_session(first))


def _is_limit(name: str) -> bool:
    return name in LIMITS or is_budget(name)


def _may_be_a_session(parameter: inspect.Parameter) -> bool:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return True
    return parameter.name not in NOT_A_SESSION and _takes_text(parameter.annotation)


def _takes_text(annotation: Any) -> bool:
    """False if it says that it is something else."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(map(_takes_text, typing.get_args(annotation)))
    if origin is not None:
        return not (inspect.isclass(origin) and issubclass(origin, collections.abc.Collection))
    if not inspect.isclass(annotation) or annotation is inspect.Parameter.empty:
        return True
    try:
        return annotation is UUID or issubclass(str, annotation) or issubclass(annotation, str)
    except TypeError:  # a TypedDict or a protocol, which may not be asked
        return False
