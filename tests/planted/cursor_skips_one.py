"""A reader that follows a session by its cursor never sees the first of what is new."""

from collections.abc import Sequence

from recollect import Message
from recollect.store import Receipt, Store, Stored
from recollect.verify import builtin
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("sqlite", "wal-full", "concurrent-writers", "follow", ("stale-read",))


class Following:
    def __init__(self, store: Store, skipped: int) -> None:
        self._store, self._skipped = store, skipped

    async def append(self, session: str, messages: Sequence[Message]) -> Receipt:
        return await self._store.append(session, messages)

    async def history(self, session: str, *, after: int | None = None) -> list[Stored]:
        return await self._store.history(session, after=None if after is None else after + self._skipped)

    async def close(self) -> None:
        await self._store.close()


async def factory(endpoint: Endpoint) -> Following:
    return Following(await builtin.sqlite(endpoint), skipped=1)


async def twin(endpoint: Endpoint) -> Following:
    return Following(await builtin.sqlite(endpoint), skipped=0)
