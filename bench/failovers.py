"""A thousand failovers: is what was acknowledged there, once, under its own sequence, and how long did nobody answer?

    python bench/failovers.py [--count 1000] [--minutes 10] [--engine redis-cluster …] [--seed 7] [--fresh]

Sixteen tasks append turns to a store that waits for every copy (`replicas`), on servers with an append-only file or a
synchronous commit, while a primary is killed, replaced by force, or cut off from the others; a task that is told that
its turn was not stored, or that nobody knows, tries again with the same turn id. Then every session is read.

It is mostly waiting: one process for each --engine, side by side, takes a third of the time.

Each failover is one line of bench/results/failovers.jsonl. A run goes on after those that are there, so the thousand
can be had in pieces; the summary is of all lines.
"""

import argparse
import asyncio
import itertools
import json
import logging
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect import Message, NotWritten, OutcomeUnknown, Store, open_store
from recollect.errors import DurabilityUnavailable, EngineUnavailable
from recollect.verify import engines
from recollect.verify.engines.postgres_ha import PostgresHaEngine

RESULTS = Path(__file__).parent / "results" / "failovers.jsonl"
ENGINES = {
    "redis-cluster": ("aof-everysec", 1),
    "redis-sentinel": ("aof-everysec", 2),
    "postgres-ha": ("first-2", 2),
}
"""Their policy, and how many copies there are of each primary."""
WAYS = ("kill", "force", "isolate")
TASKS = 16
TIMEOUT_S = 30.0
SETTLED = 3
"""Turns that each task has to store before the fault, and after it has healed."""
EACH_ENGINE = 12
"""Failovers before an engine is made anew."""


@dataclass
class Task:
    """One appender with a session of its own, and what it was told."""

    session: str
    acknowledged: list[tuple[str, int, float]] = field(default_factory=list)
    doubts: int = 0

    async def work(self, store: Store, done: asyncio.Event) -> None:
        for number in itertools.count():
            text = f"{self.session} {number}"
            while True:
                try:
                    receipt = await store.append(self.session, [Message("user", text)], turn=text)
                except (NotWritten, OutcomeUnknown, EngineUnavailable):
                    self.doubts += 1
                    await asyncio.sleep(0.01)
                    continue
                self.acknowledged.append((text, receipt.last, time.monotonic()))
                break
            if done.is_set():
                return
            await asyncio.sleep(0.005)

    def silence_s(self, begun: float) -> float:
        """The longest time without an acknowledgement since then."""
        moments = [begun, *(moment for *_, moment in self.acknowledged if moment > begun)]
        return max((later - earlier for earlier, later in itertools.pairwise(moments)), default=0.0)


def strike(engine: Any, way: str, rng: random.Random) -> None:
    """One failover, from the first moment until all servers are together again."""
    old = rng.choice(engine.primaries())
    if isinstance(engine, PostgresHaEngine):
        _strike_standbys(engine, old, way)
        return
    if way == "kill":
        old.kill()
        engine.await_successor(old)
        old.start()
    elif way == "isolate":
        engine.isolate(old)
        engine.await_successor(old)
        engine.heal()
    elif engine.name == "redis-cluster":
        engine.ask_to_fail_over(engine.replicas_of(old)[0], "force")
        engine.await_successor(old)
    else:
        engine.sentinels[0].ask("SENTINEL", "FAILOVER", "memory")
        engine.await_successor(old)
    engine.await_ready(TIMEOUT_S * 2)


def _strike_standbys(engine: PostgresHaEngine, old: Any, way: str) -> None:
    if way == "kill":
        old.kill()
    elif way == "isolate":
        for standby in engine.standbys():
            standby.stream_from(None)
    engine.promote(engine.standbys()[0] if way == "force" else engine.most_advanced())
    old.kill()
    engine.reunite()
    engine.await_ready(TIMEOUT_S)


async def until(tasks: list[Task], count: int, since: float) -> None:
    """Until each has stored as many turns since then."""
    give_up = time.monotonic() + 2 * TIMEOUT_S
    while any(sum(moment > since for *_, moment in task.acknowledged) < count for task in tasks):
        if time.monotonic() > give_up:
            raise TimeoutError(f"a task stored fewer than {count} turns in {2 * TIMEOUT_S:g} s")
        await asyncio.sleep(0.01)


async def failover(
    engine: Any, url: str, copies: int, way: str, number: int, rng: random.Random
) -> dict[str, Any]:
    tasks = [Task(f"{number}-{task}") for task in range(TASKS)]
    done = asyncio.Event()
    async with open_store(url, timeout_s=TIMEOUT_S, replicas=copies) as store:
        working = [asyncio.create_task(task.work(store, done)) for task in tasks]
        try:
            await until(tasks, SETTLED, 0.0)
            begun = time.monotonic()
            await asyncio.to_thread(strike, engine, way, rng)
            healed = time.monotonic()
            await until(tasks, SETTLED, healed)
            done.set()
            await asyncio.gather(*working)
        finally:
            for work in working:
                work.cancel()
        found = await judged(store, tasks)
    return {
        **found,
        "silence_s": round(max(task.silence_s(begun) for task in tasks), 3),
        "whole_after_s": round(healed - begun, 3),
        "doubts": sum(task.doubts for task in tasks),
    }


async def judged(store: Store, tasks: list[Task]) -> dict[str, Any]:
    lost = duplicates = reused = acknowledged = 0
    for task in tasks:
        items = await store.history(task.session)
        texts = Counter(item.message.text for item in items if isinstance(item.message, Message))
        acknowledged += len(task.acknowledged)
        lost += sum(text not in texts for text, *_ in task.acknowledged)
        duplicates += sum(count - 1 for count in texts.values())
        told = Counter(last for _, last, _ in task.acknowledged)
        reused += sum(count - 1 for count in told.values())
    return {"acknowledged": acknowledged, "lost": lost, "duplicates": duplicates, "reused": reused}


def run(name: str, lines: list[dict[str, Any]], count: int, end: float, seed: int) -> None:
    """Failovers of one engine, in turn, until there are enough or the time is up."""
    policy, copies = ENGINES[name]
    while (have := sum(line["engine"] == name for line in lines)) < count and time.monotonic() < end:
        engine: Any = engines.create(name, policy)
        try:
            if hasattr(engine, "put_proxies_between"):
                engine.put_proxies_between()
            url = engine.start().url
            for number in range(have, min(count, have + EACH_ENGINE)):
                if time.monotonic() > end:
                    return
                way = WAYS[number % len(WAYS)]
                rng = random.Random(f"{seed}/{name}/{number}")
                told: dict[str, Any]
                try:
                    told = asyncio.run(failover(engine, url, copies, way, number, rng))
                except (engines.EngineError, EngineUnavailable, DurabilityUnavailable) as error:
                    # Nobody took over, or the last failover is not over: nothing to judge.
                    told = {"abandoned": str(error)}
                except TimeoutError as error:  # a server that the fault itself had to ask did not answer
                    told = {"abandoned": f"not judged: {error}"}
                line = {"engine": name, "version": engine.version, "way": way, "number": number, **told}
                lines.append(line)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                if "abandoned" in line:
                    break
        finally:
            engine.close()


def summary(lines: list[dict[str, Any]]) -> None:
    print(
        f"{'engine':15} {'way':8} {'n':>4} {'acknowledged':>12} lost twice reused   silence s: median  p90  most"
    )
    done = [line for line in lines if "abandoned" not in line]
    for name, way in itertools.product(ENGINES, WAYS):
        some = [line for line in done if (line["engine"], line["way"]) == (name, way)]
        if not some:
            continue
        silences = sorted(line["silence_s"] for line in some)
        totals = [sum(line[key] for line in some) for key in ("acknowledged", "lost", "duplicates", "reused")]
        print(
            f"{name:15} {way:8} {len(some):4} {totals[0]:12,} {totals[1]:4} {totals[2]:5} {totals[3]:6}"
            f"{statistics.median(silences):19.2f} {silences[int(0.9 * (len(silences) - 1))]:5.2f} {silences[-1]:5.2f}"
        )
    if len(done) < len(lines):
        print(
            f"{len(lines) - len(done)} failovers abandoned: nobody took over in time, or the bench got no answer"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="failovers of all engines together")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most")
    parser.add_argument("--engine", action="append", choices=tuple(ENGINES))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    given = parser.parse_args()
    logging.getLogger("recollect").setLevel(logging.ERROR)  # what the policy can lose is known
    if given.fresh:
        RESULTS.unlink(missing_ok=True)
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    names = given.engine or list(ENGINES)
    begun = time.monotonic()
    for place, name in enumerate(names, 1):
        end = begun + given.minutes * 60 * place / len(names)
        run(name, lines, -(-given.count // len(ENGINES)), end, given.seed)
    summary(lines)


if __name__ == "__main__":
    main()
