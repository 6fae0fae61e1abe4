"""A store that says the address it was given wherever it can: it prints it, logs it, and puts it into its errors."""

import logging
import sys
from collections.abc import Sequence
from typing import Any

from recollect import open_store
from recollect.verify.engines import Endpoint


class Talkative:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._store: Any = None
        self._count = 0
        print(f"connecting to {endpoint.url}", file=sys.stderr)

    async def append(self, session: str, messages: Sequence[Any]) -> None:
        if self._store is None:
            self._store = await open_store(self._endpoint.url)
        self._count += 1
        if self._count % 5 == 0:
            logging.getLogger(__name__).warning("lost %s", self._endpoint.url)
            raise ConnectionError("x" * 280 + f" no answer from {self._endpoint.url}")
        await self._store.append(session, messages)

    async def history(self, session: str) -> list[Any]:
        if self._store is None:
            self._store = await open_store(self._endpoint.url)
        found: list[Any] = await self._store.history(session)
        return found

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()


def factory(endpoint: Endpoint) -> Talkative:
    return Talkative(endpoint)


def broken(endpoint: Endpoint) -> Talkative:
    raise RuntimeError(f"cannot reach {endpoint.url}")
