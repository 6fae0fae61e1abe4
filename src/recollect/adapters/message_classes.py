"""LangChain's chat messages, made from their fields by a shorter way than their constructors.

Each constructor only hands its arguments on to the next, three times, except where `content_blocks` stand for the
content. Most of what reading a long conversation costs is this.
"""

from typing import Any, TypeVar

from pydantic import BaseModel

Kind = TypeVar("Kind", bound=BaseModel)


def made(kind: type[Kind], fields: dict[str, Any]) -> Kind:
    """What `kind(**fields)` makes."""
    if "content" not in fields or "content_blocks" in fields:
        return kind(**fields)
    message = kind.__new__(kind)
    # A copy: a class may change what it is given before it looks at it.
    kind.__pydantic_validator__.validate_python(dict(fields), self_instance=message)
    return message
