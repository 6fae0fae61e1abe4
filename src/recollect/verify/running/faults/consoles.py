"""The engine of a run, asked directly and with the rights of its administrator: a process, a container or a service."""

from __future__ import annotations

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.engines.redis import RedisConsole
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.wire import pgwire


def redis_console(endpoint: Endpoint) -> RedisConsole:
    return RedisConsole(redis_address(endpoint.socket_url or endpoint.url))


def postgres_console(endpoint: Endpoint) -> pgwire.Connection:
    return pgwire.Connection(postgres_address(endpoint.socket_url or endpoint.url))
