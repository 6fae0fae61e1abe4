"""Another hand on the same Redis while eight tasks append: killed connections, flushed scripts, pauses, limits.

Nothing acknowledged is lost or doubled, and what a command makes impossible is an error, never silence. Then the two
worst: pauses that outlast every caller's patience, and FLUSHALL, after which a store must say that it was replaced and
acknowledge nothing more. (`DEBUG SLEEP` is refused by Redis since 7; a pause of all clients does the same.)
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import redis.asyncio
from tools.attack.assault import Assault
from tools.attack.stores import compare, engine_of, stored_once

from recollect import Message, NotWritten, OutcomeUnknown, RecollectError, Store, StoreReplaced, open_store

TIMES = 24_000
TASKS = 8
PAUSES = 10
PAUSE_S = 0.8
PATIENCE_S = 0.3
FLUSHES = 10
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    ("SCRIPT", "FLUSH"),
    ("CLIENT", "PAUSE", "20", "ALL"),
    ("CONFIG", "SET", "maxmemory", "1mb"),
    ("CONFIG", "SET", "timeout", "1"),
    ("BGREWRITEAOF",),
    ("DEL", "somebody:else"),
)


def attack(assault: Assault) -> None:
    with engine_of("redis") as engine, tempfile.TemporaryDirectory(prefix="recollect-attack-") as folder:
        url = engine.endpoint.url
        asyncio.run(_beside_hands(assault, url, assault.limit or TIMES))
        asyncio.run(_paused(assault, url))
        for number in range(FLUSHES if assault.limit is None else 2):
            asyncio.run(_flushed(assault, url, Path(folder) / f"witness-{number}"))


async def _beside_hands(assault: Assault, url: str, times: int) -> None:
    acknowledged: dict[str, list[str]] = {f"s{task}": [] for task in range(TASKS)}
    async with open_store(url) as store:
        done = asyncio.Event()
        hands = asyncio.ensure_future(_hands(assault, url, done))

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
        done.set()  # not cancelled: the driver may take that for a timeout of its own
        await hands
        async with redis.asyncio.Redis.from_url(url) as client:
            await client.config_set("maxmemory", "0")
        await compare(assault, store, "hostile commands", acknowledged)


async def _hands(assault: Assault, url: str, done: asyncio.Event) -> None:
    client: Any = redis.asyncio.Redis.from_url(url)
    try:
        while not done.is_set():
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


async def _paused(assault: Assault, url: str) -> None:
    """What is not answered in time is told as such, and is there once after it is sent again."""
    acknowledged: dict[str, list[str]] = {f"paused{task}": [] for task in range(TASKS)}
    client: Any = redis.asyncio.Redis.from_url(url)
    async with open_store(url, timeout_s=PATIENCE_S) as store, client:
        for number in range(PAUSES if assault.limit is None else 2):
            await client.execute_command("CLIENT", "PAUSE", str(int(PAUSE_S * 1000)), "ALL")
            told = await asyncio.gather(
                *(_said(store, session, f"{session}-{number}") for session in acknowledged)
            )
            assault.count("pauses")
            for session, answer in zip(acknowledged, told, strict=True):
                text = f"{session}-{number}"
                assault.expect(
                    isinstance(answer, NotWritten | OutcomeUnknown), f"{text} in a pause: {answer!r}"
                )
                if assault.expect(
                    await stored_once(store, session, text, text), f"{session} takes no writes"
                ):
                    acknowledged[session].append(text)
        await compare(assault, store, "pauses", acknowledged)


async def _flushed(assault: Assault, url: str, witness: Path) -> None:
    """FLUSHALL while everybody appends: nobody is told after it that anything was stored."""
    flushed = asyncio.Event()
    async with open_store(url, witness=witness) as store:

        async def appending(session: str) -> None:
            number = 0
            while assault.goes_on():
                began_after, number = flushed.is_set(), number + 1
                answer = await _said(store, session, f"{session}-{number}")
                if isinstance(answer, StoreReplaced):
                    assault.count("told that the store was replaced")
                    return
                if began_after:
                    assault.expect(answer is not None, f"{session}: acknowledged after FLUSHALL")
                    return

        tasks = [asyncio.ensure_future(appending(f"flushed{task}")) for task in range(TASKS)]
        await asyncio.sleep(assault.rng.uniform(0.1, 0.3))
        async with redis.asyncio.Redis.from_url(url) as client:
            await client.flushall()
            flushed.set()
        assault.count("times everything was flushed")
        await asyncio.gather(*tasks)
        try:
            read = await store.history("flushed0")
        except StoreReplaced:
            assault.count("told that the store was replaced")
        else:
            assault.found(f"after FLUSHALL a read gave {len(read)} messages and no word")
    try:
        async with open_store(url, witness=witness):
            assault.found("after FLUSHALL the store was opened with its witness, and nothing was said")
    except StoreReplaced:
        assault.count("told that the store was replaced")


async def _said(store: Store, session: str, text: str) -> RecollectError | None:
    """None if it was acknowledged."""
    try:
        await store.append(session, [Message("user", text)], turn=text)
    except RecollectError as error:
        return error
    return None
