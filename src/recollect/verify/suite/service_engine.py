"""The network between a service and its engine, where the engine is a server: a proxy in front of it.

The service gets the proxy's address in the environment variable that it reads its engine's address from.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import urlsplit

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.running.proxy import Proxy
from recollect.verify.suite.service_failed import ServiceFailed
from recollect.verify.suite.striking import for_a_block, seconds_of


class EngineLink:
    """`url` is what the service is given."""

    def __init__(self, engine: Endpoint | str) -> None:
        self._proxy = Proxy(_endpoint(engine), random.Random(0))
        self.url = self._proxy.in_front().url

    @for_a_block
    def latency(self, seconds: float) -> Iterator[None]:
        """Everything takes this much longer, each way."""
        delay_s = seconds_of("latency", seconds)
        self._proxy.delay(delay_s, delay_s)
        try:
            yield
        finally:
            self._proxy.delay(0.0, 0.0)

    @for_a_block
    def cut(self) -> Iterator[None]:
        """Connections are reset, and new ones refused."""
        self._proxy.refuse()
        self._proxy.reset()
        try:
            yield
        finally:
            self._proxy.accept()

    @for_a_block
    def silent(self) -> Iterator[None]:
        """Nothing gets through and nobody sees an error; what was sent is delivered afterwards."""
        self._proxy.hold()
        try:
            yield
        finally:
            self._proxy.release()

    def close(self) -> None:
        self._proxy.close()


def _endpoint(engine: Endpoint | str) -> Endpoint:
    if isinstance(engine, Endpoint):
        return engine
    parts = urlsplit(engine)
    if parts.hostname is None or parts.port is None:
        raise ServiceFailed(
            f"engine={engine!r}: an address with host and port, such as redis://127.0.0.1:6379/0"
        )
    return Endpoint(
        url=engine,
        engine=parts.scheme,
        product="",
        version="",
        policy="",
        provider="",
        host=parts.hostname,
        port=parts.port,
    )
