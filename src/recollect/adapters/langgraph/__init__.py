"""LangGraph's checkpoints. `saver` is what a graph sees, `shelf` is the storage under it, on each of three engines."""

from recollect.errors import MissingExtra

try:
    from recollect.adapters.langgraph.saver import RecollectSaver
except ImportError as error:
    if (error.name or "").startswith("recollect"):
        raise
    raise MissingExtra(
        f"LangGraph is not installed ({error.name}): pip install 'recollect[langgraph]'"
    ) from error

__all__ = ["RecollectSaver"]
