"""Every connection that an engine allows, held by others.

The limit is the engine's own, and it is really reached. The target's connections are ended first, as an idle timeout
or a restart of its pool would end them: a store that never needs a new connection would notice nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from recollect.verify.engines import Endpoint, EngineError
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.wire import pgwire, resp

REDIS_HOLDERS = 4
TIMEOUT_S = 10.0
_TOO_MANY = "53300"


@contextlib.contextmanager
def occupied(endpoint: Endpoint) -> Iterator[None]:
    """Within the block no client but ours has a connection, or gets one."""
    with contextlib.ExitStack() as stack:
        if endpoint.engine == "redis":
            _occupy_redis(endpoint, stack)
        else:
            _occupy_postgres(endpoint, stack)
        yield


def _occupy_redis(endpoint: Endpoint, stack: contextlib.ExitStack) -> None:
    """The limit is lowered to what we hold: ten thousand connections would test this machine, not the store."""
    address = redis_address(endpoint.socket_url or endpoint.url)
    held = [stack.enter_context(resp.Connection(address)) for _ in range(REDIS_HOLDERS)]
    control = held[0]
    ours = {str(connection.ask("CLIENT", "ID")) for connection in held}
    former = control.ask("CONFIG", "GET", "maxclients")
    assert isinstance(former, list)
    stack.callback(control.ask, "CONFIG", "SET", "maxclients", str(former[1]))
    control.ask("CONFIG", "SET", "maxclients", str(len(held)))

    def alone() -> bool:
        others = _redis_clients(control) - ours
        for client in others:
            with contextlib.suppress(resp.RespError):  # it left by itself
                control.ask("CLIENT", "KILL", "ID", client)
        return not others

    wait_until(alone, TIMEOUT_S, "the other connections to Redis did not end")


def _redis_clients(control: resp.Connection) -> set[str]:
    lines = str(control.ask("CLIENT", "LIST", "TYPE", "normal")).splitlines()
    return {line.split(" ", 1)[0].removeprefix("id=") for line in lines if line}


def _occupy_postgres(endpoint: Endpoint, stack: contextlib.ExitStack) -> None:
    """Its limit is fixed at its start, so we take every connection. A client that was just disconnected may be quicker
    than we are and reconnect: repeated until nobody but us has a connection."""
    address = postgres_address(endpoint.socket_url or endpoint.url)
    control = stack.enter_context(pgwire.Connection(address))
    ours = {_pid(control)}
    deadline = time.monotonic() + TIMEOUT_S
    _take_all(address, stack, ours)
    while others := _postgres_clients(control) - ours:
        if time.monotonic() > deadline:
            raise EngineError(f"the other {len(others)} connections to PostgreSQL did not end")
        listed = ",".join(sorted(others))
        control.ask(f"SELECT pg_terminate_backend(pid) FROM unnest(ARRAY[{listed}]) AS pid")
        _take_all(address, stack, ours)


def _take_all(address: pgwire.Address, stack: contextlib.ExitStack, ours: set[str]) -> None:
    while True:
        try:
            connection = pgwire.Connection(address)
        except pgwire.PgError as error:
            if error.code == _TOO_MANY:
                return
            raise
        stack.enter_context(connection)
        ours.add(_pid(connection))


def _pid(connection: pgwire.Connection) -> str:
    return str(connection.value("SELECT pg_backend_pid()"))


def _postgres_clients(control: pgwire.Connection) -> set[str]:
    rows = control.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")
    return {str(row[0]) for row in rows}
