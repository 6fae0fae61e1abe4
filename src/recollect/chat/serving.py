"""Runs the service: opened and checked once before any port is bound, then served by uvicorn until a signal."""

import asyncio
import socket
from collections.abc import Callable

import msgspec
import uvicorn

from recollect.chat.connections import HEAD_BYTES_MAX, BoundedConnection
from recollect.chat.service import ChatService
from recollect.chat.settings import ChatSettings, checked, to_environment
from recollect.errors import CannotOpen

GRACE_S = 30


def serve(settings: ChatSettings, on_opened: Callable[[], None]) -> None:
    """Returns when the service was told to stop and has finished its answers. Raises if it may not start."""
    checked(settings)
    _try_port(settings)
    asyncio.run(_try_memory(settings))
    on_opened()
    to_environment(settings)
    uvicorn.run(
        "recollect.chat.app:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        http=BoundedConnection,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ws="none",
    )


def _try_port(settings: ChatSettings) -> None:
    """Likewise of a port that somebody else has: otherwise the page's address is told first, and then an error."""
    try:
        socket.create_server((settings.host, settings.port), family=_family(settings.host)).close()
    except OSError as error:
        raise CannotOpen(
            f"cannot listen on {settings.host}, port {settings.port}: {_why(error)}; choose another --port"
        ) from None


def _why(error: OSError) -> str:
    """Without the address in brackets, which Python adds to it."""
    return str(error.strerror).partition(" (")[0]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def _try_memory(settings: ChatSettings) -> None:
    """Makes a refusal one sentence here, instead of a traceback from a worker. Does not open the index."""
    service = await ChatService.open(msgspec.structs.replace(settings, index="none"))
    await service.close()
