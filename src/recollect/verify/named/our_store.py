"""The store under our own adapters, as an application has it: one for all sessions of a process."""

from functools import cache
from typing import Any

from recollect.opening import open_store
from recollect.sync import SyncStore
from recollect.sync import open_store as open_sync_store
from recollect.verify.engines.endpoint import Endpoint

_opened: dict[str, Any] = {}


async def shared_store(endpoint: Endpoint) -> Any:
    if endpoint.url not in _opened:
        _opened[endpoint.url] = await open_store(_address(endpoint))
    return _opened[endpoint.url]


def shared_sync_store(endpoint: Endpoint) -> SyncStore:
    return _sync_store(_address(endpoint))


@cache
def _sync_store(address: str) -> SyncStore:
    return open_sync_store(address)


def _address(endpoint: Endpoint) -> str:
    return f"{endpoint.url}?policy={endpoint.policy}" if endpoint.engine == "sqlite" else endpoint.url
