"""LangChain chat histories: one object a session, `add_messages` and `.messages`, which has no limit."""

from functools import partial
from typing import Any

import psycopg
import redis
from langchain_community.chat_message_histories import RedisChatMessageHistory
from langchain_core.messages import HumanMessage
from langchain_postgres import PostgresChatMessageHistory

from contenders.contender import CLIENTS_MAX, READ_LAST, TEXT, SyncContender, SyncRead, SyncStep

MESSAGE = HumanMessage(content=TEXT)


class LangchainRedis(SyncContender):
    name = "LangChain RedisChatMessageHistory"
    note = "langchain-community; reads the whole session"

    async def open(self) -> None:
        self._histories: dict[tuple[int, str], Any] = {}

    async def close(self) -> None:
        for history in self._histories.values():
            history.redis_client.close()

    def _history(self, client: int, session: str) -> Any:
        # A history makes a client of its own. Those of ended slices are closed, so that connections do not pile up.
        key = client, session
        if key not in self._histories:
            for other in [other for other in self._histories if other[0] == client]:
                self._histories.pop(other).redis_client.close()
            self._histories[key] = RedisChatMessageHistory(session, url=self.place.url)
        return self._histories[key]

    async def fill(self, session: str, count: int) -> None:
        history = self._history(0, session)
        history.add_messages([MESSAGE])
        (record,) = history.redis_client.lrange(history.key, 0, 0)
        with redis.Redis.from_url(self.place.url) as client:
            for _ in range(0, count, 1_000):
                client.lpush(history.key, *[record] * min(1_000, count))
        history.redis_client.ltrim(history.key, 0, count - 1)

    def appender(self, client: int, session: str) -> SyncStep:
        return partial(self._history(client, session).add_messages, [MESSAGE])

    def reader(self, session: str) -> SyncRead:
        history = self._history(0, session)
        return lambda: history.messages[-READ_LAST:]


class LangchainPostgres(SyncContender):
    name = "LangChain PostgresChatMessageHistory"
    note = "reads the whole session"
    _TABLE = "langchain_history"

    async def open(self) -> None:
        self._connections = [psycopg.connect(self.place.url) for _ in range(CLIENTS_MAX)]
        PostgresChatMessageHistory.create_tables(self._connections[0], self._TABLE)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _history(self, client: int, session: str) -> Any:
        return PostgresChatMessageHistory(self._TABLE, session, sync_connection=self._connections[client])

    async def fill(self, session: str, count: int) -> None:
        self._history(0, session).add_messages([MESSAGE] * count)

    def appender(self, client: int, session: str) -> SyncStep:
        return partial(self._history(client, session).add_messages, [MESSAGE])

    def reader(self, session: str) -> SyncRead:
        history = self._history(0, session)
        return lambda: history.messages[-READ_LAST:]
