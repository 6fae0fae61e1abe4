"""What size costs: the same operations on a small memory and on a large one, and the room that messages take.

    python bench/scale.py                          1,000 and 100,000 sessions; sessions of 100 and 100,000 messages
    python bench/scale.py --full                   to 1,000,000 of each; 20 GB
    python bench/scale.py --engine sqlite --sessions 20000

Each engine runs twice side by side, once with `SMALL` sessions of `TURN` messages and once with as many as asked for,
and both get short slices in turn, so that a change of the machine's speed meets both. A cost is flat if the large one
takes at most `FLAT` times what the small one does. Room is compared with the raw driver's list of the same records.
`sessions()`, `sweep()` and `forget()` are judged by the most memory that Python held meanwhile. Nothing here fails on a
number. What is found replaces what results/scale.json has of the engine.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import redis.asyncio
from rich.console import Console
from rich.table import Table

from contenders.contender import MESSAGE, RECORD, Place
from contenders.raw import RawPostgres, RawRedis, RawSqlite
from copying import copy_session
from recollect import Store, open_store
from recollect.verify import engines

RESULTS = Path(__file__).parent / "results" / "scale.json"
POLICIES = {"sqlite": "wal-full", "redis": "aof-everysec", "postgres": "default"}
RAW: dict[str, type[RawSqlite | RawRedis | RawPostgres]] = {
    "sqlite": RawSqlite,
    "redis": RawRedis,
    "postgres": RawPostgres,
}

SMALL, TURN, SHORT = 1_000, 20, 100
FLAT = 1.3
EXPIRED_PART = 10
"""One session out of this many has expired when `sweep` comes."""
ROUNDS, SLICE_S = 20, 0.15
CHUNK = 1_000
SETTLING_S = 600


@dataclass
class Memory:
    """One filled store, on an engine of its own."""

    place: Place
    store: Store
    sessions: int
    messages: int

    def some(self, rng: random.Random) -> str:
        """A session that has not expired."""
        number = rng.randrange(self.sessions)
        return f"s{number + (number % EXPIRED_PART == 0)}"


@dataclass(frozen=True)
class Line:
    engine: str
    what: str
    small: float
    large: float
    unit: str

    @property
    def ratio(self) -> float:
        return self.large / self.small if self.small else 0.0


def main() -> None:
    arguments = _arguments()
    console = Console(width=max(120, Console().width))
    results = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    for engine in arguments.engine or list(POLICIES):
        started, load = time.monotonic(), os.getloadavg()[0]
        lines = asyncio.run(_measured(engine, arguments.sessions, arguments.messages, console))
        _show(console, lines, arguments)
        results[engine] = {
            "sessions": [SMALL, arguments.sessions],
            "messages": [SHORT, arguments.messages],
            "messages_a_session": TURN,
            "load_before": round(load, 1),
            "elapsed_s": round(time.monotonic() - started),
            "lines": [{**vars(line), "ratio": round(line.ratio, 3)} for line in lines],
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"{time.monotonic() - started:.0f} s, load before {load:.1f}; {arguments.output}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="a million sessions, and a session of a million")
    parser.add_argument("--sessions", type=int, default=100_000, help="of the large memory")
    parser.add_argument("--messages", type=int, default=100_000, help="of its longest session")
    parser.add_argument("--engine", action="append", choices=list(POLICIES), help="may be repeated")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    arguments = parser.parse_args()
    if arguments.full:
        arguments.sessions = arguments.messages = 1_000_000
    return arguments


async def _measured(engine: str, sessions: int, messages: int, console: Console) -> list[Line]:
    async with AsyncExitStack() as stack:
        small = await _filled(stack, engine, SMALL, SHORT)
        begun = time.monotonic()
        large = await _filled(stack, engine, sessions, messages)
        console.print(f"{engine}: {sessions:,} sessions filled in {time.monotonic() - begun:.0f} s")
        lines = [await _flat(engine, what, small, large) for what in STEPS]
        lines += [await _room(engine, large)]
        for what, step in WHOLE.items():
            held = await _peak(step, small), await _peak(step, large)
            lines.append(Line(engine, f"{what}: memory held", *held, "MB"))
        return lines


# ---- filling


async def _filled(stack: AsyncExitStack, engine: str, sessions: int, messages: int) -> Memory:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recollect-scale-")))
    url = f"sqlite:///{folder}/recollect.db"
    if engine != "sqlite":
        server = engines.create(engine, POLICIES[engine])
        stack.callback(server.close)
        url = server.start().url
    store = await stack.enter_async_context(open_store(url, timeout_s=60))
    mortal = await stack.enter_async_context(open_store(url, timeout_s=60, ttl=timedelta(seconds=1)))

    for number in range(2):  # as the store writes them; the others are copies of the last
        of = mortal if number % EXPIRED_PART == 0 else store
        await of.append(f"s{number}", [MESSAGE] * TURN)
    await copy_session(engine, url, range(2, sessions), EXPIRED_PART)
    for first in range(0, messages, CHUNK):
        await store.append("long", [MESSAGE] * min(CHUNK, messages - first))
    await _settled(engine, url)
    return Memory(Place(engine, url, folder), store, sessions - 1, messages)


async def _settled(engine: str, url: str) -> None:
    """Nobody grows a memory in minutes: what the engine still does about that is over before anything is measured."""
    if engine == "postgres":
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("VACUUM ANALYZE")
            await connection.execute("CHECKPOINT")
        finally:
            await connection.close()
    elif engine == "redis":
        client = redis.asyncio.Redis.from_url(url)
        try:
            deadline = time.monotonic() + SETTLING_S
            while (await client.info("persistence"))["aof_rewrite_in_progress"]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"Redis has been rewriting its file for more than {SETTLING_S} s")
                await asyncio.sleep(0.1)
        finally:
            await client.aclose()


# ---- costs


async def _append(memory: Memory, rng: random.Random) -> None:
    await memory.store.append(memory.some(rng), [MESSAGE])


async def _append_long(memory: Memory, _: random.Random) -> None:
    await memory.store.append("long", [MESSAGE])


async def _read(memory: Memory, rng: random.Random) -> None:
    found = await memory.store.history(memory.some(rng), last=100)
    assert len(found) >= TURN, found[:1]


async def _read_long(memory: Memory, _: random.Random) -> None:
    found = await memory.store.history("long", last=100)
    assert len(found) == SHORT, len(found)


Step = Callable[[Memory, random.Random], Awaitable[None]]
STEPS: dict[str, Step] = {
    "append to any session": _append,
    "append to the longest": _append_long,
    "read any session": _read,
    "last 100 of the longest": _read_long,
}


async def _flat(engine: str, what: str, small: Memory, large: Memory) -> Line:
    """Microseconds a call, in turns; the medians of the rounds."""
    rng = random.Random(1)
    costs: tuple[list[float], list[float]] = ([], [])
    for round_ in range(ROUNDS + 1):
        for cost, memory in zip(costs, (small, large), strict=True):
            begun, calls = time.perf_counter(), 0
            while (now := time.perf_counter()) < begun + SLICE_S:
                await STEPS[what](memory, rng)
                calls += 1
            if round_:  # the first one warms up
                cost.append((now - begun) / calls * 1e6)
    return Line(engine, what, statistics.median(costs[0]), statistics.median(costs[1]), "µs")


# ---- room


async def _room(engine: str, large: Memory) -> Line:
    """Bytes a message: the raw driver's list, and ours with its counters, turn ids and checksums."""
    count = 2_000
    raw = RAW[engine](large.place)
    await raw.open()
    try:
        before = await _bytes(large, raw=True)
        for number in range(count):
            if isinstance(raw, RawRedis):
                await raw._clients[0].rpush(f"raw:s{number}", *[RECORD] * TURN)
            else:
                await raw.fill(f"s{number}", TURN)
        theirs = (await _bytes(large, raw=True) - before) / (count * TURN)
        before = await _bytes(large, raw=False)
        for number in range(count):
            await large.store.append(f"room{number}", [MESSAGE] * TURN)
        ours = (await _bytes(large, raw=False) - before) / (count * TURN)
    finally:
        await raw.close()
    return Line(engine, "room of a message (raw list, ours)", theirs, ours, "B")


async def _bytes(memory: Memory, *, raw: bool) -> int:
    place = memory.place
    if place.engine == "redis":
        client = redis.asyncio.Redis.from_url(place.url)
        try:
            found = await client.info("memory")
            passing = found["mem_aof_buffer"] + found["mem_clients_normal"]
            return int(found["used_memory"]) - int(passing)
        finally:
            await client.aclose()
    if place.engine == "postgres":
        connection = await asyncpg.connect(place.url)
        try:
            like = "raw" if raw else "recollect\\_%"
            total = (
                "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class "
                "WHERE relkind = 'r' AND relname LIKE $1"
            )
            return int(await connection.fetchval(total, like))
        finally:
            await connection.close()
    names = (RawSqlite.name,) if raw else ("recollect",)
    return sum(path.stat().st_size for path in place.folder.iterdir() if path.name.startswith(names))


# ---- whole memories


async def _list(memory: Memory) -> None:
    count = 0
    async for _ in memory.store.sessions():
        count += 1
    assert count > memory.sessions // 2


async def _list_changed(memory: Memory) -> None:
    async for _ in memory.store.sessions(updated_after=0.0):
        pass


async def _sweep(memory: Memory) -> None:
    await memory.store.sweep()


async def _forget(memory: Memory) -> None:
    await memory.store.forget("long")


WHOLE: dict[str, Callable[[Memory], Awaitable[None]]] = {
    "sessions()": _list,
    "sessions(updated_after=)": _list_changed,
    "sweep()": _sweep,
    "forget() of the longest": _forget,
}


async def _peak(step: Callable[[Memory], Awaitable[None]], memory: Memory) -> float:
    """The most that Python held more than before, in MB."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await step(memory)
        return (tracemalloc.get_traced_memory()[1] - before) / 1e6
    finally:
        tracemalloc.stop()


def _show(console: Console, lines: list[Line], arguments: Any) -> None:
    table = Table(
        title=f"{SMALL:,} and {arguments.sessions:,} sessions; {SHORT} and {arguments.messages:,} messages"
    )
    for name in ("engine", "what", "small", "large", "×"):
        table.add_column(name, justify="left" if name in ("engine", "what") else "right")
    for line in lines:
        flat = "" if line.ratio <= FLAT or (line.unit == "MB" and line.large < 10) else f"  above {FLAT}"
        shown = [f"{value:,.1f} {line.unit}" for value in (line.small, line.large)]
        table.add_row(line.engine, line.what, *shown, f"{line.ratio:.2f}{flat}")
    console.print(table)


if __name__ == "__main__":
    main()
