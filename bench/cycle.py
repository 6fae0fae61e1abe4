"""How fast one crash cycle is: write 200 messages → SIGKILL → restart → verify all; natively and in Docker,
in one run.

Native and Docker slices alternate, so that both see the same weather of the machine, and a ratio compares two
neighbouring slices. The same small client (the kit's own) drives both sides: what is measured is the engine
and how it is started, not a driver. Docker is what testcontainers gives, from images made here of the very
same binaries, on a named volume; where there is no daemon, one is started, and where that cannot be, the
reason is printed instead of a number.

`start → ready` is `Engine.start()` on a prepared folder; PostgreSQL's copy of the template folder is a line
of its own.

    python bench/cycle.py [--quick] [--out FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.providers import docker_daemon, docker_images

from recollect.verify import engines, providers
from recollect.verify.host.errors import NotInstalled
from recollect.verify.providers import docker
from recollect.verify.providers.build import Build
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.wire import pgwire, resp

MESSAGES = [json.dumps({"id": number, "role": "user", "content": "x" * 200}) for number in range(200)]
REDIS, POSTGRES = ("redis@7", "aof-everysec"), ("postgres@18", "default")
IMAGES = {"redis@7": "recollect-bench-redis:7.0", "postgres@18": "recollect-bench-postgres:18"}
STARTS = (
    ("redis@7", 15),
    ("redis@6.2", 15),
    ("valkey", 50),
    ("postgres@18", 50),
    ("chroma", 200),
    ("sqlite", None),
)
"""Engine, and the most that its median start → ready may take, in milliseconds."""
RATIO_MIN, CYCLES_MIN = 5.0, 900.0


class Memory(Protocol):
    """Just enough of a store to be crashed."""

    def write(self, message: str) -> None: ...

    def read(self) -> list[str]: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


class RedisMemory:
    def __init__(self, endpoint: engines.Endpoint) -> None:
        self._connection = resp.Connection(redis_address(endpoint.socket_url or endpoint.url))
        self.close = self._connection.close

    def write(self, message: str) -> None:
        self._connection.ask("RPUSH", "messages", message)

    def read(self) -> list[str]:
        found = self._connection.ask("LRANGE", "messages", "0", "-1")
        assert isinstance(found, list)
        return [str(message) for message in found]

    def clear(self) -> None:
        self._connection.ask("DEL", "messages")


class PostgresMemory:
    def __init__(self, endpoint: engines.Endpoint) -> None:
        self._connection = pgwire.Connection(postgres_address(endpoint.socket_url or endpoint.url))
        self._connection.ask("CREATE TABLE IF NOT EXISTS messages (number serial PRIMARY KEY, body text)")
        self.close = self._connection.close

    def write(self, message: str) -> None:
        self._connection.ask(f"INSERT INTO messages (body) VALUES ({pgwire.literal(message)})")

    def read(self) -> list[str]:
        return [str(body) for (body,) in self._connection.ask("SELECT body FROM messages ORDER BY number")]

    def clear(self) -> None:
        self._connection.ask("DELETE FROM messages")


def memory(endpoint: engines.Endpoint) -> Memory:
    return RedisMemory(endpoint) if endpoint.engine == "redis" else PostgresMemory(endpoint)


def cycle(engine: engines.Engine) -> int:
    """One crash cycle on a running engine; returns how many acknowledged messages were lost."""
    writer = memory(engine.endpoint)
    for message in MESSAGES:
        writer.write(message)
    engine.kill()
    with contextlib.suppress(OSError):
        writer.close()
    reader = memory(engine.start())
    kept = reader.read()
    assert kept == MESSAGES[: len(kept)], "what is kept must be a prefix of what was acknowledged"
    reader.clear()
    reader.close()
    return len(MESSAGES) - len(kept)


def cycles_for(engine: engines.Engine, seconds: float) -> dict[str, float]:
    """As many cycles as fit, at least two."""
    times: list[float] = []
    lost = 0
    began = time.perf_counter()
    while len(times) < 2 or time.perf_counter() - began < seconds:
        at = time.perf_counter()
        lost += cycle(engine)
        times.append(time.perf_counter() - at)
    elapsed = time.perf_counter() - began
    return {
        "cycles": len(times),
        "cycles_a_minute": 60 * len(times) / elapsed,
        "cycle_ms": 1000 * statistics.median(times),
        "lost": lost,
    }


def ready(spec: str, policy: str | None, provider: str | None) -> engines.Engine:
    engine = engines.create(spec, policy, provider=provider)
    engine.start()
    cycle(engine)
    return engine


# Start → ready ------------------------------------------------------------------------------------


def measure_starts(repeats: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for spec, limit_ms in STARTS:
        with _installed(spec):
            prepared, first, again = [], [], []
            for _ in range(repeats):
                engine: Any = engines.create(spec)
                prepared.append(_timed(getattr(engine, "prepare", lambda: None)))
                first.append(_timed(engine.start))
                engine.kill()
                again.append(_timed(engine.start))
                engine.close()
            results[spec] = {
                "product": engine.product,
                "version": engine.version,
                "provider": engine.provider,
                "prepare_ms": _summary(prepared),
                "start_ms": _summary(first),
                "restart_after_kill_ms": _summary(again),
                "limit_ms": limit_ms,
            }
    return results


@contextlib.contextmanager
def _installed(spec: str) -> Iterator[None]:
    try:
        yield
    except engines.NotInstalled as missing:
        print(f"skipped {spec}: {missing}")


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)


def _summary(times_ms: list[float]) -> dict[str, float]:
    ordered = sorted(times_ms)
    return {
        "median": round(statistics.median(ordered), 2),
        "p10": round(ordered[len(ordered) // 10], 2),
        "p90": round(ordered[len(ordered) * 9 // 10], 2),
    }


# Native against Docker ----------------------------------------------------------------------------


def measure_against_docker(rounds: int, slice_s: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    try:
        with docker_daemon.available():
            _make_images()
            for spec, policy in (REDIS, POSTGRES):
                results[spec] = _compare(spec, policy, rounds, slice_s)
    except docker_daemon.Unavailable as reason:
        results["skipped"] = str(reason)
    return results


def _make_images() -> None:
    with contextlib.closing(docker.client()) as client:
        docker_images.import_redis(client, _native("redis@7"), IMAGES["redis@7"])
        docker_images.import_postgres(client, _native("postgres@18"), IMAGES["postgres@18"])


def _native(spec: str) -> Build:
    with contextlib.suppress(NotInstalled):
        return providers.find(spec, "system")
    return providers.find(spec, "wheel")


def _compare(spec: str, policy: str, rounds: int, slice_s: float) -> dict[str, Any]:
    native, carried = ready(spec, policy, _native(spec).provider), ready(spec, policy, "docker")
    try:
        pairs = [(cycles_for(native, slice_s), cycles_for(carried, slice_s)) for _ in range(rounds)]
    finally:
        native.close()
        carried.close()
    ratios = [one["cycles_a_minute"] / other["cycles_a_minute"] for one, other in pairs]
    return {
        "policy": policy,
        "native": _merged([pair[0] for pair in pairs]),
        "docker": _merged([pair[1] for pair in pairs]),
        "native_over_docker": {
            "median": round(statistics.median(ratios), 2),
            "rounds": [round(r, 2) for r in ratios],
        },
        "ratio_min": RATIO_MIN,
    }


def _merged(slices: list[dict[str, float]]) -> dict[str, float]:
    return {
        "cycles": sum(each["cycles"] for each in slices),
        "lost": sum(each["lost"] for each in slices),
        "cycles_a_minute": round(statistics.median(each["cycles_a_minute"] for each in slices), 1),
        "cycle_ms": round(statistics.median(each["cycle_ms"] for each in slices), 2),
    }


# Workers ------------------------------------------------------------------------------------------


def measure_workers(seconds: float) -> dict[str, Any]:
    """Redis everysec cycles of several processes at once, each with its own engine and warden."""
    context = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {}
    for count in (1, 2, 4):
        barrier = context.Barrier(count)
        with context.Pool(count, _begin_together, (barrier,)) as pool:
            told = pool.map(_work, [seconds] * count, chunksize=1)
        results[str(count)] = {
            "cycles_a_minute": round(sum(each["cycles_a_minute"] for each in told), 1),
            "lost": sum(each["lost"] for each in told),
        }
    results["cycles_min_with_2"] = CYCLES_MIN
    return results


_barrier: Any = None


def _begin_together(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _work(seconds: float) -> dict[str, float]:
    engine = ready(*REDIS, None)
    _barrier.wait()
    try:
        return cycles_for(engine, seconds)
    finally:
        engine.close()


# Report -------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> None:
    print("\nstart → ready, median (10th to 90th percentile), ms")
    for spec, told in results["starts"].items():
        start, again, prepare = told["start_ms"], told["restart_after_kill_ms"], told["prepare_ms"]
        name = f"{told['product']} {told['version']}"
        mark = (
            ""
            if told["limit_ms"] is None
            else _mark(start["median"] < told["limit_ms"], f"< {told['limit_ms']}")
        )
        print(
            f"  {spec:12} {name:17} {start['median']:7.1f} ({start['p10']:.1f}-{start['p90']:.1f}) {mark:12}"
            f" after a kill {again['median']:6.1f}   data folder {prepare['median']:6.1f}"
        )
    print("\n200 messages → SIGKILL → restart → verify, cycles a minute")
    if "skipped" in results["docker"]:
        print(f"  Docker: skipped: {results['docker']['skipped']}")
    for spec, told in results["docker"].items():
        if spec != "skipped":
            ratio = told["native_over_docker"]["median"]
            print(
                f"  {spec:12} native {told['native']['cycles_a_minute']:7.0f} ({told['native']['cycle_ms']:.0f} ms)"
                f"   docker {told['docker']['cycles_a_minute']:6.0f} ({told['docker']['cycle_ms']:.0f} ms)"
                f"   ratio {ratio:5.1f} {_mark(ratio >= RATIO_MIN, f'≥ {RATIO_MIN:g}')}"
            )
    for count in ("1", "2", "4"):
        told = results["workers"][count]
        mark = _mark(told["cycles_a_minute"] >= CYCLES_MIN, f"≥ {CYCLES_MIN:g}") if count == "2" else ""
        print(
            f"  redis everysec, {count} worker(s): {told['cycles_a_minute']:7.0f} {mark}  lost {told['lost']}"
        )


def _mark(reached: bool, limit: str) -> str:
    return f"{'✓' if reached else '✗'} {limit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a minute instead of four")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "cycle.json")
    given = parser.parse_args()
    repeats, rounds, slice_s, workers_s = (7, 2, 2.0, 4.0) if given.quick else (31, 5, 4.0, 12.0)
    results = {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "messages": len(MESSAGES),
        "load_before": os.getloadavg()[0],
        "starts": measure_starts(repeats),
        "workers": measure_workers(workers_s),
        "docker": measure_against_docker(rounds, slice_s),
    }
    report(results)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
