"""SIGKILL of every PostgreSQL process, and terminated backends, again and again while many tasks append.

What was acknowledged is there after the last start, once and in order.
"""

from __future__ import annotations

import asyncio

from tools.attack.assault import Assault
from tools.attack.stores import compare, engine_of, stored_once

from recollect import open_store
from recollect.verify.engines import Engine

TIMES = 100_000
TASKS = 32
BETWEEN_KILLS_S = 1.5


def attack(assault: Assault) -> None:
    with engine_of("postgres") as engine:
        asyncio.run(_attack(assault, engine, assault.limit or TIMES))


async def _attack(assault: Assault, engine: Engine, times: int) -> None:
    acknowledged: dict[str, list[str]] = {f"s{task}": [] for task in range(TASKS)}
    done = asyncio.Event()
    async with open_store(engine.endpoint.url, pool_size=4) as store:

        async def appending(session: str) -> None:
            while assault.counts["acknowledged"] < times and assault.goes_on():
                text = f"{session}-{len(acknowledged[session])}"
                if await stored_once(store, session, text, text, tries=1):
                    acknowledged[session].append(text)
                    assault.count("acknowledged")
                else:
                    await asyncio.sleep(0.01)  # the engine is starting

        killing = asyncio.ensure_future(_kill(assault, engine, done))
        await asyncio.gather(*map(appending, acknowledged))
        done.set()
        await killing
        await compare(assault, store, "PostgreSQL kills", acknowledged)


async def _kill(assault: Assault, engine: Engine, done: asyncio.Event) -> None:
    while not done.is_set():
        try:
            await asyncio.wait_for(done.wait(), assault.rng.uniform(0.2, BETWEEN_KILLS_S))
        except TimeoutError:
            await asyncio.to_thread(engine.kill)
            await asyncio.to_thread(engine.start)
            assault.count("kills")
