"""Values that an application may hand over by mistake, and that have no JSON."""

from typing import Any


def circle() -> Any:
    """A list in itself."""
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> Any:
    """Deeper than a serializer goes."""
    value: Any = None
    for _ in range(3_000):
        value = [value]
    return value
