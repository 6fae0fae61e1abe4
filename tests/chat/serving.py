"""The chat's app behind a socket of its own, in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from recollect.chat.connections import HEAD_BYTES_MAX, BoundedConnection


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[int]:
    """The port it listens on, as `recollect chat` would serve it."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            log_level="critical",
            http=BoundedConnection,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            ws="none",
        )
    )
    running = asyncio.create_task(server.serve())
    try:
        deadline = asyncio.get_running_loop().time() + 30
        while not server.started:
            assert not running.done(), "the service did not start"
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.005)
        port: int = server.servers[0].sockets[0].getsockname()[1]
        yield port
    finally:
        server.should_exit = True
        await running
