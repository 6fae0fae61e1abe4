"""Another hand on the same Redis while eight tasks append: killed connections, flushed scripts, pauses, limits.

Nothing acknowledged is lost or doubled, and what a command makes impossible is an error, never silence.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import redis.asyncio
from tools.attack.assault import Assault
from tools.attack.stores import compare, engine_of, stored_once

from recollect import open_store

TIMES = 24_000
TASKS = 8
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    ("SCRIPT", "FLUSH"),
    ("CLIENT", "PAUSE", "20", "ALL"),
    ("CONFIG", "SET", "maxmemory", "1mb"),
    ("CONFIG", "SET", "timeout", "1"),
    ("BGREWRITEAOF",),
    ("DEL", "somebody:else"),
    ("DEBUG", "SLEEP", "0.02"),
)


def attack(assault: Assault) -> None:
    with engine_of("redis") as engine:
        asyncio.run(_attack(assault, engine.endpoint.url, assault.limit or TIMES))


async def _attack(assault: Assault, url: str, times: int) -> None:
    acknowledged: dict[str, list[str]] = {f"s{task}": [] for task in range(TASKS)}
    async with open_store(url) as store:
        hands = asyncio.ensure_future(_hands(assault, url))

        async def appending(session: str) -> None:
            for number in range(times // TASKS):
                if not assault.goes_on():
                    return
                text = f"{session}-{number}"
                if not await stored_once(store, session, text, text):
                    assault.found(f"{session} takes no more writes")
                    return
                acknowledged[session].append(text)
                assault.count("appends")

        await asyncio.gather(*map(appending, acknowledged))
        hands.cancel()
        await asyncio.wait([hands])
        async with redis.asyncio.Redis.from_url(url) as client:
            await client.config_set("maxmemory", "0")
        await compare(assault, store, "hostile commands", acknowledged)


async def _hands(assault: Assault, url: str) -> None:
    client: Any = redis.asyncio.Redis.from_url(url)
    try:
        while True:
            try:
                await client.execute_command(*assault.rng.choice(COMMANDS))
                assault.count("hostile commands")
            except (redis.RedisError, OSError, TimeoutError):
                assault.count("refused hostile commands")
            await asyncio.sleep(0.01)
            with contextlib.suppress(redis.RedisError, OSError, TimeoutError):
                await client.config_set("maxmemory", "0")
    finally:
        await client.aclose()
