"""LangGraph's checkpoints and its long-term memory.

`saver` is what a graph sees of its checkpoints, `shelf` is the storage under it, on each of three engines. `store` is
the long-term memory, over our stores and `recall`.
"""

from recollect.errors import MissingExtra

try:
    from recollect.adapters.langgraph.saver import RecollectSaver
    from recollect.adapters.langgraph.store import RecollectStore
except ImportError as error:
    if (error.name or "").startswith("recollect"):
        raise
    raise MissingExtra(
        f"LangGraph is not installed ({error.name}): pip install 'recollect[langgraph]'"
    ) from error

__all__ = ["RecollectSaver", "RecollectStore"]
