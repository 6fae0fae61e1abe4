"""Our store on a real cluster, beside raw RPUSH through redis-py's cluster client, in one run.

    python bench/cluster.py [--quick] [--engine redis-cluster|valkey-cluster] [--only starting|appends|primaries]

Rates depend on the machine; their ratio is what counts. Each number is the best of several rounds that take turns, so
that a busy moment strikes all of them. redis-py stores a bare list element; ours keeps order, turn ids and identity.

- starting: seconds until a cluster of three primaries and three replicas takes writes: the first of a process (cold),
  each further one (next; all are new), and one that was killed and is started again in its own folders, as some faults
  do (again; for two of these seconds a cluster refuses writes by itself, CLUSTER_WRITABLE_DELAY). The processor time is
  that of this process and of the servers. Sentinel and replicated PostgreSQL beside it.
- appends: ours and redis-py's, with 8 and 64 tasks; `WAIT 1` is `replicas=1`.
- primaries: microseconds of this process for an append, on 1, 3, 6 and 12 primaries without replicas. A task makes the
  same number of appends on each, so that what a task itself costs is in all figures alike.

All of it goes to bench/results/cluster.json.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from redis.asyncio import RedisCluster

from recollect import Message, Store, open_store
from recollect.verify import engines, providers
from recollect.verify.engines import EngineOptions
from recollect.verify.engines.redis_cluster import RedisClusterEngine

RESULTS = Path(__file__).parent / "results" / "cluster.json"
PRIMARIES = (1, 3, 6, 12)
PROCESSES = 3
STARTS = 2
"""In each process, after the first."""
BUSY_LOOP = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: pass"
TASKS = (8, 64)
CONNECTS_MAX = 5
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


async def connected(make: Callable[[], Any]) -> Any:
    """redis-py's client, with as many connections as it will need. It may raise an AttributeError when many
    tasks connect at once, so it gets several tries; what it raises later counts."""
    for left in reversed(range(CONNECTS_MAX)):
        client = make()
        used = (client.rpush(f"raw-{task}", TEXT) for task in range(TASKS[-1]))
        errors = [
            one for one in await asyncio.gather(*used, return_exceptions=True) if isinstance(one, Exception)
        ]
        if not errors:
            return client
        await client.aclose()
        if not left:
            raise errors[0]
    raise AssertionError("unreachable")


async def compare(url: str, node: str, rounds: int, each: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    raw = await connected(lambda: RedisCluster.from_url(node))
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
        best = asyncio.run(_costs(urls, rounds, each // TASKS[-1]))
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
    """`each` is of a task. With the same tasks for all sizes, a write shares its request with fewer others the more
    primaries there are; with the same tasks for each primary, with as many."""
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
                    _, cpu = await measured(append, tasks(count), each)
                    best[told][count] = min(best[told][count], cpu)
    return best


def starting(name: str) -> dict[str, Any]:
    """Each in a process of its own, as a run is; once as the machine is, once with every processor taken."""
    found: dict[str, Any] = {}
    for moment, neighbours in (("as it is", 0), ("busy", os.cpu_count() or 1)):
        busy = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(neighbours)]
        try:
            for spec in (name, name.replace("cluster", "sentinel"), "postgres-ha"):
                starts: dict[str, list[float]] = {}
                for _ in range(PROCESSES):
                    told = subprocess.run(
                        [sys.executable, __file__, "--starts-of", spec], check=True, stdout=subprocess.PIPE
                    )
                    for way, measures in json.loads(told.stdout).items():
                        starts.setdefault(way, []).extend(measures)
                found.setdefault(moment, {})[spec] = starts
                _show_starts(moment, spec, starts)
        finally:
            for neighbour in busy:
                neighbour.kill()
                neighbour.wait()
    return {"starting": found}


def _show_starts(moment: str, spec: str, starts: dict[str, list[float]]) -> None:
    for way in ("cold", "next", "again"):
        times = starts[f"{way}_s"]
        print(
            f"{moment:9} {spec:15} {way:6} median {statistics.median(times):.2f} s, "
            f"from {min(times):.2f} to {max(times):.2f}; "
            f"{statistics.median(starts[f'{way}_cpu_ms']):.0f} ms of processor"
        )


def starts_of(spec: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for number in range(1 + STARTS):
        engine = None
        try:
            for way in ("next" if number else "cold", "again"):
                begun, spent = time.perf_counter(), time.process_time()
                engine = engine or engines.create(spec)
                engine.start()
                found.setdefault(f"{way}_s", []).append(round(time.perf_counter() - begun, 2))
                own = time.process_time() - spent
                servers = sum(_processor_s(server.pid) for server in cast(Any, engine).servers)
                found.setdefault(f"{way}_cpu_ms", []).append(round((own + servers) * 1000))
                engine.kill()
        finally:
            if engine is not None:
                engine.close()
    return found


def _processor_s(pid: int) -> float:
    """What this process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="redis-cluster", choices=("redis-cluster", "valkey-cluster"))
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    parser.add_argument("--only", choices=("starting", "appends", "primaries"))
    parser.add_argument("--starts-of", metavar="ENGINE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.starts_of:
        print(json.dumps(starts_of(given.starts_of)))
        return
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
