"""Our stores, opened as a user opens them."""

import os
from functools import partial

from contenders.contender import (
    CLIENTS_MANY,
    CLIENTS_MAX,
    FILL_CHUNK,
    MESSAGE,
    READ_LAST,
    AsyncContender,
    AsyncRead,
    AsyncStep,
)
from recollect import Store, open_store


class Ours(AsyncContender):
    name = "recollect"
    append_clients = frozenset({1, CLIENTS_MAX, CLIENTS_MANY})
    _store: Store

    async def open(self) -> None:
        url = (
            f"sqlite:///{self.place.folder}/recollect.db" if self.place.engine == "sqlite" else self.place.url
        )
        self._store = await self._opened(url)
        self.note = f"receipts say {self._store.durability.value}"

    async def _opened(self, url: str) -> Store:
        """As without opentelemetry, or where nobody has set it up."""
        os.environ["OTEL_SDK_DISABLED"] = "true"
        return await open_store(url)

    async def close(self) -> None:
        await self._store.close()

    async def fill(self, session: str, count: int) -> None:
        for _ in range(0, count, FILL_CHUNK):
            await self._store.append(session, [MESSAGE] * FILL_CHUNK)

    async def appender(self, client: int, session: str) -> AsyncStep:
        return partial(self._store.append, session, [MESSAGE])

    async def reader(self, session: str) -> AsyncRead:
        return partial(self._store.history, session, last=READ_LAST)


class OursObserved(Ours):
    """The same with the SDK of OpenTelemetry, whose spans and metrics go nowhere."""

    name = "recollect, observed"
    append_clients = frozenset({1, CLIENTS_MAX})

    async def _opened(self, url: str) -> Store:
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider

        os.environ.pop("OTEL_SDK_DISABLED", None)
        if not isinstance(trace.get_tracer_provider(), TracerProvider):
            trace.set_tracer_provider(TracerProvider())
            metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
        return await open_store(f"{url}.observed" if url.startswith("sqlite") else url)
