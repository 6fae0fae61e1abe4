"""Our own stores as targets: what `recollect verify sqlite redis postgres` puts to the test."""

from typing import Any
from urllib.parse import quote

from recollect.opening import Opening, open_store
from recollect.verify.engines.endpoint import Endpoint

OPERATION_TIMEOUT_S = 5.0


def sqlite(endpoint: Endpoint) -> Opening:
    return _open(endpoint, f"{endpoint.url}?policy={endpoint.policy}")


def redis(endpoint: Endpoint) -> Opening:
    return _open(endpoint, _with(endpoint.url, "prefix", endpoint.namespace))


def postgres(endpoint: Endpoint) -> Opening:
    url = _with(endpoint.url, "search_path", endpoint.namespace)
    return _open(endpoint, url, read_url=endpoint.replicas[0] if endpoint.replicas else None)


def _open(endpoint: Endpoint, url: str, **options: Any) -> Opening:
    return open_store(url, timeout_s=OPERATION_TIMEOUT_S, **options)


def _with(url: str, name: str, value: str | None) -> str:
    if value is None:
        return url
    return f"{url}{'&' if '?' in url else '?'}{name}={quote(value, safe='')}"
