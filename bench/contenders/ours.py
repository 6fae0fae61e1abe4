"""Our stores, opened as a user opens them."""

from functools import partial

from contenders.contender import FILL_CHUNK, MESSAGE, READ_LAST, AsyncContender, AsyncRead, AsyncStep
from recollect import Store, open_store


class Ours(AsyncContender):
    name = "recollect"
    _store: Store

    async def open(self) -> None:
        url = (
            f"sqlite:///{self.place.folder}/recollect.db" if self.place.engine == "sqlite" else self.place.url
        )
        self._store = await open_store(url)
        self.note = f"receipts say {self._store.durability.value}"

    async def close(self) -> None:
        await self._store.close()

    async def fill(self, session: str, count: int) -> None:
        for _ in range(0, count, FILL_CHUNK):
            await self._store.append(session, [MESSAGE] * FILL_CHUNK)

    async def appender(self, client: int, session: str) -> AsyncStep:
        return partial(self._store.append, session, [MESSAGE])

    async def reader(self, session: str) -> AsyncRead:
        return partial(self._store.history, session, last=READ_LAST)
