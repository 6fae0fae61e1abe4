"""A database that is already there, as the endpoint that a target's factory gets. Nothing that it does changes it.

A SQLite file is copied, since stores change files only by opening them; the copy is a snapshot, beside writers too, and
is removed afterwards. A server is reached through the gate.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from recollect.audit.sqlite import check_room, copied, file_of
from recollect.errors import EngineUnavailable, Refused
from recollect.guarantees import MADE_OF
from recollect.secret import scheme_of, shown
from recollect.verify.auditing.gate import ReadGate
from recollect.verify.engines import postgres, redis
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host.errors import EngineError
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.providers.url import engine_of
from recollect.verify.wire import pgwire, resp


def engine_at(url: str) -> str:
    """The engine of an address; refuses those that cannot be read."""
    if scheme_of(url) == "sqlite":
        return "sqlite"
    try:
        engine = engine_of(url)
    except EngineError as error:
        raise Refused(str(error)) from None
    if engine in MADE_OF:
        raise Refused(
            f"{shown(url)} names several servers, and a store of your own is read from one: give the address of one of "
            "them, as redis://host:port or postgresql://host:port/database"
        )
    return engine


@asynccontextmanager
async def existing(url: str, timeout_s: float) -> AsyncIterator[Endpoint]:
    """The database at the address, for reading."""
    if engine_at(url) == "sqlite":
        with tempfile.TemporaryDirectory(prefix="recollect-audit-") as folder:
            yield await _copy(url, Path(folder), timeout_s)
        return
    server = await asyncio.to_thread(_server, url, timeout_s)
    gate = await asyncio.to_thread(ReadGate, server)
    try:
        yield gate.in_front()
    finally:
        await asyncio.to_thread(gate.close)


async def _copy(url: str, folder: Path, timeout_s: float) -> Endpoint:
    path = file_of(url)
    copy = folder / path.name
    check_room(path, folder)
    version = await copied(url, copy, timeout_s)
    return Endpoint(
        url=f"sqlite:///{copy}",
        engine="sqlite",
        product="sqlite",
        version=version,
        policy="custom",
        provider="url",
        path=copy,
    )


def _server(url: str, timeout_s: float) -> Endpoint:
    """The server itself; `EngineUnavailable` if it does not answer."""
    try:
        if engine_at(url) == "redis":
            at = redis_address(url)
            product, version = redis.identify(at)
            host, port, user, socket = at.host, at.port, at.username, at.socket
            password = at.password
        else:
            there = postgres_address(url)
            product, version = postgres.identify(there)
            host, port, user, password = there.host, there.port, there.user, there.password
            socket = None if there.socket_folder is None else there.socket_folder / f".s.PGSQL.{there.port}"
    except (OSError, resp.RespError, pgwire.PgError, EngineError) as error:
        raise EngineUnavailable(f"{shown(url)}: {error}") from None
    return Endpoint(
        url=url,
        engine=engine_at(url),
        product=product,
        version=version,
        policy="custom",
        provider="url",
        host=host,
        port=port,
        user=user,
        password=password,
        socket=socket,
        timeout_s=timeout_s,
    )


def answers(endpoint: Endpoint) -> bool:
    """Whether the engine answers; if it does, what a store raises is the store's own error."""
    try:
        if endpoint.engine == "redis":
            with resp.Connection(redis_address(endpoint.url)) as connection:
                return connection.ask("PING") == "PONG"
        if endpoint.engine == "postgres":
            pgwire.Connection(postgres_address(endpoint.url)).close()
        return True
    except (OSError, resp.RespError, pgwire.PgError):
        return False
