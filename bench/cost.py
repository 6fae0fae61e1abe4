"""What a message of 1 KB costs: bytes in memory, on disk and in the log; processor time of server and client.

    python bench/cost.py [--users 1000] [--only redis|postgres]

Each user has a conversation of fifty messages, by 32 tasks, each message with a turn id, as a service does it. From
that, what a million such users cost in a day. All of it goes to bench/results/cost.json.
"""

import argparse
import asyncio
import json
import os
import random
import time
import uuid
from pathlib import Path
from typing import Any

from recollect import Message, open_store
from recollect.verify import engines
from recollect.verify.wire.resp import fields_of

RESULTS = Path(__file__).parent / "results" / "cost.json"
MESSAGES = 50
TASKS = 32
TEXT_BYTES = 1000
LETTERS = "abcdefghijklmnopqrstuvwxyz     "
USERS, DAY_S, PEAK = 1_000_000, 86_400, 5
WAL = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
TABLES = (
    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'recollect_%' AND relkind = 'r'"
)


async def filled(url: str, users: int) -> dict[str, float]:
    """Rate, and this process's microseconds for a message."""
    rng = random.Random(1)
    texts = ["".join(rng.choices(LETTERS, k=TEXT_BYTES)) for _ in range(200)]
    async with open_store(url, timeout_s=60) as store:
        names = iter([f"user-{number}-{uuid.UUID(int=number)}" for number in range(users)])

        async def conversations() -> None:
            for name in names:
                for _ in range(MESSAGES):
                    await store.append(name, [Message("user", rng.choice(texts))], turn=uuid.uuid4().hex)

        begun, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(conversations() for _ in range(TASKS)))
        count = users * MESSAGES
        return {
            "rate": count / (time.perf_counter() - begun),
            "client_us": (time.process_time() - spent) / count * 1e6,
        }


def of_redis(policy: str, users: int) -> dict[str, Any]:
    engine: Any = engines.create("redis", policy)
    try:
        endpoint = engine.start()
        # What was written is counted, not what a rewrite leaves of it.
        engine.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
        before, spent = _memory(engine), _processor_s(engine.pid)
        found = asyncio.run(filled(endpoint.url, users))
        count = users * MESSAGES
        log = sum(path.stat().st_size for path in engine.data.rglob("*.aof"))
        return {
            "engine": f"{engine.product} {engine.version}",
            **found,
            "server_us": (_processor_s(engine.pid) - spent) / count * 1e6,
            "stored_bytes": (_memory(engine) - before) / count,
            "log_bytes": log / count,
        }
    finally:
        engine.close()


def of_postgres(users: int) -> dict[str, Any]:
    engine: Any = engines.create("postgres", "default")
    try:
        endpoint = engine.start()
        asyncio.run(_opened(endpoint.url))
        engine.ask("CHECKPOINT")
        before, spent = int(engine.ask(WAL)[0][0]), _processor_s(engine.pid)
        found = asyncio.run(filled(endpoint.url, users))
        count = users * MESSAGES
        return {
            "engine": f"{engine.product} {engine.version}",
            **found,
            "server_us": (_processor_s(engine.pid) - spent) / count * 1e6,
            "stored_bytes": int(engine.ask(TABLES)[0][0]) / count,
            "log_bytes": (int(engine.ask(WAL)[0][0]) - before) / count,
        }
    finally:
        engine.close()


async def _opened(url: str) -> None:
    """The tables are made before anything is counted."""
    async with open_store(url):
        pass


def _memory(engine: Any) -> int:
    return int(fields_of(engine.ask("INFO", "memory"))["used_memory"])


def _processor_s(pid: int) -> float:
    """Of a server, its children, and those of them that have ended."""
    total = 0.0
    for each in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def of_a_million(found: dict[str, Any]) -> dict[str, float]:
    """What a day of a million users takes."""
    each_day = USERS * MESSAGES
    return {
        "stored_gb_a_day": found["stored_bytes"] * each_day / 1e9,
        "log_gb_a_day": found["log_bytes"] * each_day / 1e9,
        "cores_at_peak": found["server_us"] * each_day / DAY_S * PEAK / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--only", choices=("redis", "postgres"))
    given = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    ways = {f"redis {policy}": policy for policy in ("none", "aof-everysec", "aof-always")}
    for name in (*ways, "postgres default"):
        if given.only and not name.startswith(given.only):
            continue
        found = of_redis(ways[name], given.users) if name in ways else of_postgres(given.users)
        size = {"messages": given.users * MESSAGES, "text_bytes": TEXT_BYTES}
        kept[name] = size | {
            key: value if isinstance(value, str) else round(value, 2)
            for key, value in (found | of_a_million(found)).items()
        }
        print(name, kept[name], flush=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
