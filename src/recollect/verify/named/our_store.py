"""The store under our own adapters, as an application has it: one for all sessions of a process."""

from functools import cache
from typing import Any

from recollect.opening import open_store
from recollect.store import OpenOptions
from recollect.sync import SyncStore
from recollect.sync import open_store as open_sync_store
from recollect.verify.engines.endpoint import Endpoint

_opened: dict[str, Any] = {}


async def shared_store(endpoint: Endpoint) -> Any:
    if endpoint.url not in _opened:
        _opened[endpoint.url] = await open_store(address_of(endpoint), **_options(endpoint))
    return _opened[endpoint.url]


def shared_sync_store(endpoint: Endpoint) -> SyncStore:
    return _sync_store(address_of(endpoint), endpoint.settings.get("witness"))


@cache
def _sync_store(address: str, witness: str | None) -> SyncStore:
    return open_sync_store(address, witness=witness)


def _options(endpoint: Endpoint) -> OpenOptions:
    """A witness, where the kit has a place for it: outside of what it wipes."""
    return {"witness": endpoint.settings.get("witness")}


def address_of(endpoint: Endpoint) -> str:
    """Where our stores find this engine, under the policy of the cell."""
    return f"{endpoint.url}?policy={endpoint.policy}" if endpoint.engine == "sqlite" else endpoint.url
