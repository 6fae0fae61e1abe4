"""Appends that come together are written together. A caller that has given up is told so too, which raises, and those
behind it in the batch wait for ever. The twin tells only those who still wait."""

import asyncio
from collections.abc import Sequence
from typing import Any

from recollect.verify.engines.endpoint import Endpoint
from tests.planted.sqlite_rows import SqliteRows

BATCHED_S = 0.005


class Batched:
    def __init__(self, endpoint: Endpoint) -> None:
        self.rows = SqliteRows(endpoint)
        self.waiting: list[tuple[str, Sequence[dict[str, Any]], asyncio.Future[None]]] = []
        self.flusher: asyncio.Task[None] | None = None

    async def append(self, session: str, messages: Sequence[dict[str, Any]]) -> None:
        written = asyncio.get_running_loop().create_future()
        self.waiting.append((session, messages, written))
        if self.flusher is None or self.flusher.done():
            self.flusher = asyncio.create_task(self.flush())
        await written

    async def flush(self) -> None:
        await asyncio.sleep(BATCHED_S)
        batch, self.waiting = self.waiting, []
        for session, messages, _ in batch:
            for message in messages:
                self.rows.append_message(session, message)
        for *_, written in batch:
            self.tell(written)

    def tell(self, written: asyncio.Future[None]) -> None:
        written.set_result(None)

    async def history(self, session: str) -> list[Any]:
        return self.rows.get_history(session)


class ToldIfTheyWait(Batched):
    def tell(self, written: asyncio.Future[None]) -> None:
        if not written.done():
            written.set_result(None)


def factory(endpoint: Endpoint) -> Batched:
    return Batched(endpoint)


def twin(endpoint: Endpoint) -> ToldIfTheyWait:
    return ToldIfTheyWait(endpoint)
