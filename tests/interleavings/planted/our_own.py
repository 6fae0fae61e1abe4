"""recollect's own stores as threads and other callers use them. Nothing wrong with them."""

from __future__ import annotations

from typing import Any

from recollect.sync import open_store
from recollect.verify.engines import Endpoint


def sync_sqlite(endpoint: Endpoint) -> Any:
    return open_store(f"{endpoint.url}?policy={endpoint.policy}")


def sync_redis(endpoint: Endpoint) -> Any:
    return open_store(endpoint.url)
