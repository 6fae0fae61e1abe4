"""Running the service: opened and checked once before any port is bound, then served by uvicorn until a signal."""

import asyncio
import socket

import uvicorn

from recollect.chat.service import ChatService
from recollect.chat.settings import Settings, checked, to_environment

GRACE_S = 30


def serve(settings: Settings) -> None:
    """Returns when the service was told to stop and has answered what it had begun. Raises if it may not start."""
    checked(settings)
    asyncio.run(_try_memory(settings))
    to_environment(settings)
    config = uvicorn.Config(
        "recollect.chat.app:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level="warning",
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
        h11_max_incomplete_event_size=32 * 1024,
        http="h11",
    )
    if settings.workers > 1:
        from uvicorn.supervisors import Multiprocess

        listener: socket.socket = config.bind_socket()
        Multiprocess(config, target=uvicorn.Server(config).run, sockets=[listener]).run()
    else:
        uvicorn.Server(config).run()


async def _try_memory(settings: Settings) -> None:
    """A refusal comes as one sentence here, not as a traceback out of a worker. The index is not opened for that."""
    import msgspec

    service = await ChatService.open(msgspec.structs.replace(settings, index="none"))
    await service.close()
