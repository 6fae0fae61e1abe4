"""Our own stores as targets: what `recollect verify sqlite redis postgres chroma` puts to the test."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from recollect.message import Message
from recollect.opening import Opening, open_store
from recollect.store import Receipt, Store, Stored
from recollect.verify.engines.endpoint import Endpoint

if TYPE_CHECKING:
    from recollect.verify.recall_targets import RecallTarget

OPERATION_TIMEOUT_S = 5.0


def sqlite(endpoint: Endpoint) -> Opening:
    return _open(endpoint, f"{endpoint.url}?policy={endpoint.policy}")


def redis(endpoint: Endpoint) -> Opening:
    return _open(endpoint, _with(endpoint.url, "prefix", endpoint.namespace))


def redis_fsynced(endpoint: Endpoint) -> Opening:
    """Redis where each acknowledgement waits for the disk, whatever the policy."""
    return _open(endpoint, _with(endpoint.url, "prefix", endpoint.namespace), durability="fsynced")


def redis_waits_for_1(endpoint: Endpoint) -> Opening:
    """Redis where each acknowledgement waits for one replica."""
    return _open(endpoint, _with(endpoint.url, "prefix", endpoint.namespace), replicas=1)


def redis_waits_for_2(endpoint: Endpoint) -> Opening:
    return _open(endpoint, _with(endpoint.url, "prefix", endpoint.namespace), replicas=2)


def postgres(endpoint: Endpoint) -> Opening:
    """On an engine reached by address, `url` points at the database or schema made for this run."""
    return _open(endpoint, endpoint.url, read_url=endpoint.replicas[0] if endpoint.replicas else None)


async def chroma(endpoint: Endpoint) -> "RecallTarget":
    """Long-term memory: rows in SQLite, and Chroma as their index."""
    from recollect.verify.recall_targets import recall  # needs NumPy, which the stores do not

    return await recall(endpoint)


def sqlite_week(endpoint: Endpoint) -> Opening:
    return _open(endpoint, f"{endpoint.url}?policy={endpoint.policy}", ttl=timedelta(days=8))


def redis_week(endpoint: Endpoint) -> Opening:
    return _open(endpoint, _with(endpoint.url, "prefix", endpoint.namespace), ttl=timedelta(days=8))


def postgres_week(endpoint: Endpoint) -> Opening:
    return _open(endpoint, endpoint.url, ttl=timedelta(days=8))


async def sqlite_next(endpoint: Endpoint) -> "Next":
    return Next(await sqlite(endpoint))


async def redis_next(endpoint: Endpoint) -> "Next":
    return Next(await redis(endpoint))


async def postgres_next(endpoint: Endpoint) -> "Next":
    return Next(await postgres(endpoint))


async def chroma_next(endpoint: Endpoint) -> "NextRecall":
    return NextRecall(await chroma(endpoint))


class Next:
    """The next release, simulated: it writes a newer record version with fields that this release does not know."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def append(
        self, session: str, messages: Sequence[Message], *, turn: str | None = None, expect: int | None = None
    ) -> Receipt:
        return await self._store.append(session, _newer(messages), turn=turn, expect=expect)

    async def history(
        self, session: str, *, last: int | None = None, after: int | None = None
    ) -> list[Stored]:
        return await self._store.history(session, last=last, after=after)

    async def close(self) -> None:
        await self._store.close()


class NextRecall:
    """The same for long-term memory."""

    def __init__(self, target: "RecallTarget") -> None:
        self._target = target
        self.history, self.search = target.history, target.search
        self.forget, self.close = target.forget, target.close

    async def append(self, session: str, messages: Sequence[Message], *, turn: str | None = None) -> None:
        await self._target.append(session, _newer(messages), turn=turn)


def _newer(messages: Sequence[Message]) -> list[Message]:
    return [msgspec.structs.replace(m, schema=m.schema + 1, extra={"mood": "calm"}) for m in messages]


def _open(endpoint: Endpoint, url: str, **options: Any) -> Opening:
    timeout_s = endpoint.timeout_s or OPERATION_TIMEOUT_S
    return open_store(url, timeout_s=timeout_s, witness=endpoint.settings.get("witness"), **options)


def _with(url: str, name: str, value: str | None) -> str:
    if value is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}{name}={quote(value, safe='')}"
