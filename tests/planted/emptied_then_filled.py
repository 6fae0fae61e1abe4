"""A compaction empties the session and then writes the summary: a reader between the two sees no memory at all."""

from collections.abc import Sequence
from typing import Any

import redis.asyncio as redis

from recollect import Conflict, Message
from recollect.message import decode, encode
from recollect.store import Stored
from recollect.verify.engines.endpoint import Endpoint
from tests.planted.planted import Planted

PLANTED = Planted("redis", "aof-always", "none", "changes", ("torn-turn",), variant="several-writers")

APPEND = """
for _, message in ipairs(ARGV) do
    redis.call('RPUSH', KEYS[1], redis.call('INCR', KEYS[2]) .. ' ' .. message)
end
"""
EMPTY = """
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if ARGV[1] ~= '' and tonumber(ARGV[1]) ~= last then return last end
redis.call('DEL', KEYS[1])
redis.call('INCR', KEYS[2])
"""
REPLACE = EMPTY + "table.remove(ARGV, 1)" + APPEND


class OneScript:
    """Numbers are never given again, and emptying takes one too: the last one is a session's position."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client: Any = redis.Redis.from_url(endpoint.url)

    async def run(self, script: str, session: str, *values: bytes | str) -> Any:
        return await self.client.eval(script, 2, f"said:{session}", f"last:{session}", *values)

    async def append(self, session: str, messages: Sequence[Message]) -> None:
        await self.run(APPEND, session, *map(encode, messages))

    async def replace(self, session: str, messages: Sequence[Message], *, expect: int | None = None) -> None:
        await self.change(REPLACE, session, expect, *map(encode, messages))

    async def change(self, script: str, session: str, expect: int | None, *values: bytes) -> None:
        last = await self.run(script, session, "" if expect is None else str(expect), *values)
        if last is not None and expect is not None:
            raise Conflict(session, expect, int(last))

    async def position(self, session: str) -> int:
        return int(await self.client.get(f"last:{session}") or 0)

    async def history(self, session: str) -> list[Stored]:
        rows = [row.split(b" ", 1) for row in await self.client.lrange(f"said:{session}", 0, -1)]
        return [Stored(int(number), decode(message)) for number, message in rows]

    async def close(self) -> None:
        await self.client.aclose()


class TwoScripts(OneScript):
    async def replace(self, session: str, messages: Sequence[Message], *, expect: int | None = None) -> None:
        await self.change(EMPTY, session, expect)
        await self.append(session, messages)


def factory(endpoint: Endpoint) -> TwoScripts:
    return TwoScripts(endpoint)


def twin(endpoint: Endpoint) -> OneScript:
    return OneScript(endpoint)
