"""LangGraph savers: a checkpoint holds the thread's whole state, so each message writes all those before it again.

Only the saver's own `put` and `get_tuple` are counted, without a graph around them and with the state at hand: less
than an application pays. The state starts empty in each slice.
"""

import sqlite3
from contextlib import ExitStack
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from contenders.contender import (
    CLIENTS_MAX,
    READ_LAST,
    TEXT,
    SyncContender,
    SyncRead,
    SyncStep,
    sqlite_note,
)

MESSAGE = HumanMessage(content=TEXT)
GROWS = "every message rewrites the state, which starts empty in each slice; reads the whole state"


class _Saver(SyncContender):
    shares_sessions = False  # the last of two writers wins: there would be nothing to compare
    _savers: list[Any]

    async def fill(self, session: str, count: int) -> None:
        _Thread(self._savers[0], session).put([MESSAGE] * count)

    def appender(self, client: int, session: str) -> SyncStep:
        thread = _Thread(self._savers[client % len(self._savers)], session)
        messages: list[Any] = []

        def append() -> None:
            messages.append(MESSAGE)
            thread.put(messages)

        return append

    def reader(self, session: str) -> SyncRead:
        saver = self._savers[0]
        config = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}

        def read() -> list[Any]:
            messages: list[Any] = saver.get_tuple(config).checkpoint["channel_values"]["messages"]
            return messages[-READ_LAST:]

        return read


class _Thread:
    """A thread's place in its saver: each checkpoint names the one before."""

    def __init__(self, saver: Any, session: str) -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": session, "checkpoint_ns": ""}}
        self._version: Any = None

    def put(self, messages: list[Any]) -> None:
        self._version = self._saver.get_next_version(self._version, None)
        versions = {"messages": self._version}
        checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"messages": messages},
            "channel_versions": versions,
        }
        metadata = {"source": "loop", "step": len(messages), "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, metadata, versions)


class LanggraphSqlite(_Saver):
    name = "LangGraph SqliteSaver"

    async def open(self) -> None:
        path = self.place.folder / "langgraph.db"
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._savers = [SqliteSaver(self._connection)]
        self._savers[0].setup()
        self.note = f"{sqlite_note(path)}; {GROWS}"

    async def close(self) -> None:
        self._connection.close()


class LanggraphPostgres(_Saver):
    name = "LangGraph PostgresSaver"
    note = GROWS

    async def open(self) -> None:
        self._opened = ExitStack()
        self._savers = [
            self._opened.enter_context(PostgresSaver.from_conn_string(self.place.url))
            for _ in range(CLIENTS_MAX)
        ]
        self._savers[0].setup()

    async def close(self) -> None:
        self._opened.close()
