"""One connection, one request at a time; a caller that gives up leaves its answer to whoever asks next."""

import asyncio
from collections.abc import Sequence
from typing import Any

from recollect.message import Damaged, Message, decode, encode
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted(
    "redis", "none", "cancel", "turns", ("cross-session-leak", "unreadable", "corrupted", "phantom")
)


class OneConnection:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.lock = asyncio.Lock()
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        await self.ask(b"RPUSH", f"chat:{session}".encode(), *map(encode, messages))

    async def history(self, session: str) -> list[Message | Damaged]:
        return [
            decode(record) for record in await self.ask(b"LRANGE", f"chat:{session}".encode(), b"0", b"-1")
        ]

    async def ask(self, *words: bytes) -> Any:
        async with self.lock:
            return await self.exchange(*words)

    async def exchange(self, *words: bytes) -> Any:
        if self.streams is None:
            assert self.endpoint.port is not None
            self.streams = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
        reader, writer = self.streams
        writer.write(
            b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        )
        return await _answer(reader)

    async def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


async def _answer(reader: asyncio.StreamReader) -> Any:
    line = await reader.readuntil(b"\r\n")
    if line[:1] == b"*":
        return [await _answer(reader) for _ in range(int(line[1:]))]
    if line[:1] == b"$":
        return (await reader.readexactly(int(line[1:]) + 2))[:-2]
    return line[1:-2]


class ClosedWhenGivenUp(OneConnection):
    """Nothing wrong: a connection with an answer outstanding is not used again."""

    async def exchange(self, *words: bytes) -> Any:
        try:
            return await super().exchange(*words)
        except BaseException:
            await self.close()
            self.streams = None
            raise


def factory(endpoint: Endpoint) -> OneConnection:
    return OneConnection(endpoint)


def twin(endpoint: Endpoint) -> ClosedWhenGivenUp:
    return ClosedWhenGivenUp(endpoint)
