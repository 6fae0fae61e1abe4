"""Callers that give up: every append is cancelled at a random moment, then sent again under its turn id.

Whatever the moment: the message is there once, the store goes on working, and nobody gets another's answer.
"""

from __future__ import annotations

import asyncio

from tools.attack.assault import Assault
from tools.attack.stores import ENGINES, address_of, compare, stored_once

from recollect import Message, Store, open_store

TIMES = 2_000
TASKS = 8


def attack(assault: Assault) -> None:
    for name in ENGINES:
        with address_of(name) as url:
            asyncio.run(_one(assault, name, url, (assault.limit or TIMES)))


async def _one(assault: Assault, name: str, url: str, times: int) -> None:
    acknowledged: dict[str, list[str]] = {}
    async with open_store(url) as store:
        usual_s = await _usual_s(store)
        while assault.counts[name] < times and assault.goes_on():
            await asyncio.gather(
                *(
                    _cancelled(assault, store, name, f"s{task}", acknowledged, usual_s)
                    for task in range(TASKS)
                )
            )
        await compare(assault, store, f"cancellation on {name}", acknowledged)
    assault.count("cancellations", assault.counts[name])


async def _usual_s(store: Store) -> float:
    """About how long an append takes: moments are chosen within it."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    for number in range(20):
        await store.append("usual", [Message("user", str(number))])
    return (loop.time() - started) / 20


async def _cancelled(
    assault: Assault,
    store: Store,
    name: str,
    session: str,
    acknowledged: dict[str, list[str]],
    usual_s: float,
) -> None:
    text = f"{session}-{assault.counts[name]}-{assault.rng.random()}"
    task = asyncio.ensure_future(store.append(session, [Message("user", text)], turn=text))
    await asyncio.sleep(assault.rng.uniform(0, 2 * usual_s))
    task.cancel()
    await asyncio.wait([task])
    assault.count(name)
    if assault.expect(
        await stored_once(store, session, text, text), f"{name}: {session} takes no more writes"
    ):
        acknowledged.setdefault(session, []).append(text)
