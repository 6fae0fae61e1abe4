"""Our store on a real cluster, beside raw RPUSH through redis-py's cluster client, in one run.

    python bench/cluster.py [--quick] [--engine redis-cluster|valkey-cluster] [--only starting|appends|primaries]

Rates depend on the machine; their ratio is what counts. Each number is the best of several rounds that take turns, so
that a busy moment strikes all of them. redis-py stores a bare list element; ours keeps order, turn ids and identity.

- starting: seconds until a cluster of three primaries and three replicas takes writes, cold, and started again in its
  own folders.
- appends: ours and redis-py's, with 8 and 64 tasks; `WAIT 1` is `replicas=1`.
- primaries: microseconds of this process for an append, on 1, 3, 6 and 12 primaries without replicas.

All of it goes to bench/results/cluster.json.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from redis.asyncio import RedisCluster

from recollect import Message, Store, open_store
from recollect.verify import engines, providers
from recollect.verify.engines import EngineOptions
from recollect.verify.engines.redis_cluster import RedisClusterEngine

RESULTS = Path(__file__).parent / "results" / "cluster.json"
PRIMARIES = (1, 3, 6, 12)
STARTS = 5
TASKS = (8, 64)
TEXT = "x" * 200

Append = Callable[[int, int], Awaitable[object]]


async def measured(append: Append, tasks: int, each: int) -> tuple[float, float]:
    """Appends a second, and microseconds of this process for each."""

    async def work(task: int) -> None:
        for number in range(each):
            await append(task, number)

    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work(task) for task in range(tasks)))
    total = tasks * each
    return total / (time.perf_counter() - begun), (time.process_time() - cpu) / total * 1e6


async def compare(url: str, node: str, rounds: int, each: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    raw = RedisCluster.from_url(node)
    async with open_store(url) as ours, open_store(url, replicas=1) as waiting:
        ways: dict[str, Append] = {
            "redis-py RPUSH": lambda task, number: raw.rpush(f"raw-{task}", TEXT),
            "recollect": lambda task, number: ours.append(f"s-{task}", [Message("user", TEXT)]),
            "recollect, replicas=1": lambda task, number: waiting.append(
                f"w-{task}", [Message("user", TEXT)]
            ),
        }
        for tasks in TASKS:
            best: dict[str, tuple[float, float]] = {}
            for _ in range(rounds):
                for name, append in ways.items():
                    rate, cpu = await measured(append, tasks, max(5, each // tasks))
                    before = best.get(name, (0.0, float("inf")))
                    best[name] = max(rate, before[0]), min(cpu, before[1])
            for name, (rate, cpu) in best.items():
                ratio = rate / best["redis-py RPUSH"][0]
                print(
                    f"{tasks:3} tasks  {name:22} {rate:9,.0f}/s  {ratio:5.2f} ×  {cpu:6.1f} µs of the client"
                )
                lines.append(
                    {
                        "tasks": tasks,
                        "way": name,
                        "rate": rate,
                        "ratio": round(ratio, 2),
                        "client_us": round(cpu, 1),
                    }
                )
    await raw.aclose()
    return lines


def appends(name: str, rounds: int, each: int) -> dict[str, Any]:
    engine = engines.create(name, "none")
    try:
        endpoint = engine.start()
        print(f"{engine.product} {engine.version}, 3 primaries, 3 replicas, policy none")
        found = asyncio.run(compare(endpoint.url, endpoint.nodes[0], rounds, each))
        return {"engine": f"{engine.product} {engine.version}", "appends": found}
    finally:
        engine.close()


def of_size(name: str, primaries: int) -> RedisClusterEngine:
    """A cluster with so many primaries, and no replicas."""

    class Sized(RedisClusterEngine):
        primaries_count = primaries
        replicas_count = 0

    return Sized(providers.find(name), EngineOptions(policy="none"))


def primaries(name: str, rounds: int, each: int) -> dict[str, Any]:
    """All sizes take turns."""
    clusters = {count: of_size(name, count) for count in PRIMARIES}
    try:
        urls = {count: cluster.start().url for count, cluster in clusters.items()}
        best = asyncio.run(_costs(urls, rounds, each))
    finally:
        for cluster in clusters.values():
            cluster.close()
    for told, costs in best.items():
        for count, cost in costs.items():
            print(
                f"{count:3} primaries  {told}  {cost:6.1f} µs of the client  {cost / costs[1]:5.2f} × that of one"
            )
    return {
        "client_us_by_primaries": {
            told: {count: round(cost, 1) for count, cost in costs.items()} for told, costs in best.items()
        }
    }


async def _costs(urls: dict[int, str], rounds: int, each: int) -> dict[str, dict[int, float]]:
    """With the same tasks for all sizes, a write shares its request with fewer others the more primaries there are;
    with the same tasks for each primary, with as many."""
    ways: dict[str, Callable[[int], int]] = {
        "64 tasks": lambda count: TASKS[-1],
        "64 for each": lambda count: TASKS[-1] * count,
    }
    best = {told: dict.fromkeys(urls, float("inf")) for told in ways}
    async with AsyncExitStack() as stack:
        stores: dict[int, Store] = {
            count: await stack.enter_async_context(open_store(url)) for count, url in urls.items()
        }
        for _ in range(rounds):
            for count, store in stores.items():

                def append(task: int, number: int, store: Store = store) -> Awaitable[object]:
                    return store.append(f"s-{task}", [Message("user", TEXT)])

                for told, tasks in ways.items():
                    _, cpu = await measured(append, tasks(count), max(5, each // tasks(count)))
                    best[told][count] = min(best[told][count], cpu)
    return best


def starting(name: str) -> dict[str, Any]:
    """Cold is a cluster that is made anew; warm the same one, emptied and started again."""
    cold, warm = [], []
    for _ in range(STARTS):
        begun = time.perf_counter()
        engine = engines.create(name, "none")
        try:
            engine.start()
            cold.append(time.perf_counter() - begun)
            engine.kill()
            begun = time.perf_counter()
            engine.start()
            warm.append(time.perf_counter() - begun)
        finally:
            engine.close()
    for told, times in (("cold", cold), ("started again", warm)):
        print(f"{told:14} median {statistics.median(times):.2f} s, from {min(times):.2f} to {max(times):.2f}")
    return {"start_cold_s": [round(one, 2) for one in cold], "start_again_s": [round(one, 2) for one in warm]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="redis-cluster", choices=("redis-cluster", "valkey-cluster"))
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    parser.add_argument("--only", choices=("starting", "appends", "primaries"))
    given = parser.parse_args()
    rounds, each = (3, 600) if given.quick else (7, 4000)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "starting": lambda: starting(given.engine),
        "appends": lambda: appends(given.engine, rounds, each),
        "primaries": lambda: primaries(given.engine, rounds, each),
    }
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in [given.only] if given.only else list(parts):
        found |= parts[name]()
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
