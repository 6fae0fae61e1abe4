"""Our store on a real cluster, beside raw RPUSH through redis-py's cluster client, in one run.

    python bench/cluster.py [--quick] [--engine redis-cluster|valkey-cluster]

Rates depend on the machine; their ratio is what counts. Each number is the best of several rounds that take turns, so
that a busy moment strikes all of them. redis-py stores a bare list element; ours keeps order, turn ids and identity.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from redis.asyncio import RedisCluster

from recollect import Message, open_store
from recollect.verify import engines

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


async def compare(url: str, node: str, rounds: int, each: int) -> None:
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
    await raw.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="redis-cluster", choices=("redis-cluster", "valkey-cluster"))
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    given = parser.parse_args()
    engine = engines.create(given.engine, "none")
    try:
        endpoint = engine.start()
        print(f"{engine.product} {engine.version}, 3 primaries, 3 replicas, policy none")
        rounds, each = (3, 600) if given.quick else (7, 4000)
        asyncio.run(compare(endpoint.url, endpoint.nodes[0], rounds, each))
    finally:
        engine.close()


if __name__ == "__main__":
    main()
