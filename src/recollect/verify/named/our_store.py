"""The store under our own adapters, as an application has it: one for all sessions of a process."""

from functools import cache
from typing import Any

from recollect.opening import open_store
from recollect.store import OpenOptions, Stored
from recollect.sync import open_store as open_sync_store
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.target.returned import is_loss_marker

_opened: dict[str, Any] = {}


class WithoutMarkers:
    """A store that shows no markers in place of lost messages: in a framework's conversation they would be messages
    like any other, and the kit counts losses itself."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def history(self, session: str, **options: Any) -> list[Stored]:
        return _without_markers(await self._store.history(session, **options))


class SyncWithoutMarkers(WithoutMarkers):
    def history(self, session: str, **options: Any) -> list[Stored]:  # type: ignore[override]
        return _without_markers(self._store.history(session, **options))


def _without_markers(items: list[Stored]) -> list[Stored]:
    return [item for item in items if not is_loss_marker(item)]


async def shared_store(endpoint: Endpoint) -> Any:
    if endpoint.url not in _opened:
        store = await open_store(address_of(endpoint), **_options(endpoint))
        _opened[endpoint.url] = WithoutMarkers(store)
    return _opened[endpoint.url]


def shared_sync_store(endpoint: Endpoint) -> Any:
    return _sync_store(address_of(endpoint), endpoint.settings.get("witness"))


@cache
def _sync_store(address: str, witness: str | None) -> Any:
    return SyncWithoutMarkers(open_sync_store(address, witness=witness))


def _options(endpoint: Endpoint) -> OpenOptions:
    """A witness, if the kit has a place for it outside what it wipes."""
    return {"witness": endpoint.settings.get("witness")}


def address_of(endpoint: Endpoint) -> str:
    """Where our stores find this engine, under the policy of the cell."""
    return f"{endpoint.url}?policy={endpoint.policy}" if endpoint.engine == "sqlite" else endpoint.url
