"""Redis engines for tests, a namespace of its own for each, and hands to do what others do behind the store's back."""

import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from recollect.verify import engines
from recollect.verify.engines import Engine

BUILDS = ("redis@7", "redis@6.2", "valkey")


@contextmanager
def started(build: str, policy: str, config: Path | None = None) -> Iterator[Engine]:
    engine = engines.create(build, policy, config=config)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def address(engine: Engine, prefix: str | None = None) -> str:
    """The engine through its socket, with a key prefix that no other test uses."""
    url = engine.endpoint.socket_url
    assert url is not None
    return f"{url}&prefix={prefix or new_prefix()}"


def new_prefix() -> str:
    return f"test-{uuid.uuid4().hex}"


@contextmanager
def hands_on(engine: Engine) -> Iterator[Any]:
    """The driver's own client. Untyped, for it promises either bytes or text from every call."""
    url = engine.endpoint.socket_url
    assert url is not None
    client = redis.Redis.from_url(url)
    try:
        yield client
    finally:
        client.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port
