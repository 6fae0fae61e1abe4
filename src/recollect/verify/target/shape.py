"""How a store is written to and read."""

from typing import Any, NamedTuple


class BadTarget(Exception):
    """The target cannot be used; the message is one sentence for the person who named it."""


class Shape(NamedTuple):
    """How a store is written to and read."""

    name: str
    write: str
    reads: tuple[str, ...]
    per_session: bool
    whole_list: bool
    batches: bool
    origin: str


SHAPES: tuple[Shape, ...] = (
    Shape("append/history", "append", ("history",), False, False, True, "recollect's own"),
    Shape("append_message/get_history", "append_message", ("get_history", "get_messages"), False, False, False,
          "append_message(session, message) with get_history(session, limit=…) or get_messages(session)"),
    Shape("save/load", "save", ("load",), False, True, True,
          "save(session, messages) of the whole list with load(session)"),
    Shape("add_messages/messages", "add_messages", ("messages", "get_messages"), True, False, True,
          "LangChain chat history, one per session"),
    Shape("add_items/get_items", "add_items", ("get_items",), True, False, True,
          "OpenAI Agents SDK session, one per session"),
)  # fmt: skip


def shape_of(store: Any, spec: str, per_session: bool) -> Shape:
    for shape in SHAPES:
        fits = shape.per_session == per_session and hasattr(store, shape.write)
        if fits and any(hasattr(type(store), read) or hasattr(store, read) for read in shape.reads):
            return shape
    found = [name for name in dir(store) if not name.startswith("_") and callable(getattr(store, name, None))]
    shapes = "; ".join(f"{shape.write} with {' or '.join(shape.reads)} ({shape.origin})" for shape in SHAPES)
    kind = "factory(endpoint, session)" if per_session else "factory(endpoint)"
    raise BadTarget(
        f"target {spec!r}: {type(store).__name__} has no known shape. Found: {', '.join(found[:12]) or 'no methods'}. "
        f"Known shapes: {shapes}. It was made by {kind}; the last two need a session argument."
    )
