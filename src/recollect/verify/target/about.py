"""A session's metadata, as a session of its own with at most one message: each annotation replaces the one before.

So workloads, histories and checkers need no other words for it: `annotate` is a `replace`, and `describe` a read.
"""

from collections.abc import Mapping
from typing import Any

_ABOUT = " (metadata)"
SAID = "said"
"""The key whose value is the message."""


def about(session: str) -> str:
    """The name of a session's metadata."""
    return session + _ABOUT


def session_about(name: str) -> str | None:
    """The session whose metadata it is; None for any other."""
    return name.removesuffix(_ABOUT) if name.endswith(_ABOUT) else None


def said_in(metadata: Mapping[str, Any]) -> list[Any]:
    """What it says: one message, or none. Metadata that nobody here wrote is shown as it is."""
    if not metadata:
        return []
    return [metadata[SAID] if metadata.keys() == {SAID} else str(dict(metadata))]
