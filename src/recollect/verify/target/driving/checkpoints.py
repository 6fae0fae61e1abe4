"""LangGraph's checkpoint savers: the state of a thread is read, messages are added to it, and the new state is put."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from recollect.verify.target.driving import Course, Driven
from recollect.verify.target.interfaces import Interface, LangChainMessages, Mappings

CHANNEL = "messages"


class Checkpoints(Driven):
    rewrites = True

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        # Savers that belong to an event loop refuse their synchronous methods there.
        prefix = "a" if isinstance(getattr(store, "loop", None), asyncio.AbstractEventLoop) else ""
        self._put, self._get = getattr(store, f"{prefix}put"), getattr(store, f"{prefix}get_tuple")
        has_classes = importlib.util.find_spec("langchain_core") is not None
        self.interface: Interface = LangChainMessages() if has_classes else Mappings()
        delete = getattr(store, f"{prefix}delete_thread", None)
        if callable(delete):
            self.forget = delete

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._put)

    def appending(self, session: str, messages: list[Any]) -> Course[None]:
        config = _thread(session)
        found = yield self._get(config)
        before = {} if found is None else found.checkpoint
        said = [*_said(before), *messages]
        version = self._next_version(before.get("channel_versions", {}).get(CHANNEL))
        versions = {**before.get("channel_versions", {}), CHANNEL: version}
        after = {
            "v": 4,
            "id": _new_id(),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": {**before.get("channel_values", {}), CHANNEL: said},
            "channel_versions": versions,
            "versions_seen": before.get("versions_seen", {}),
            "updated_channels": [CHANNEL],
        }
        step = -1 if found is None else (found.metadata or {}).get("step", -1) + 1
        metadata: dict[str, Any] = {"source": "loop", "step": step, "parents": {}}
        yield self._put(config if found is None else found.config, after, metadata, {CHANNEL: version})

    def reading(self, session: str) -> Course[list[Any]]:
        found = yield self._get(_thread(session))
        return [] if found is None else _said(found.checkpoint)

    def _next_version(self, current: Any) -> Any:
        following = getattr(self.store, "get_next_version", None)
        return (current or 0) + 1 if following is None else following(current, None)


def _thread(session: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": session, "checkpoint_ns": ""}}


def _said(checkpoint: Mapping[str, Any]) -> list[Any]:
    return list(checkpoint.get("channel_values", {}).get(CHANNEL, ()))


def _new_id() -> str:
    """LangGraph's own; without it, one that sorts by time as well."""
    try:
        from langgraph.checkpoint.base.id import uuid6
    except ImportError:
        return f"{time.time_ns():020x}-{uuid.uuid4().hex[:12]}"
    return str(uuid6())
