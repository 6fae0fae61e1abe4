"""What the pytest plugin costs a suite that does not use it, and how long a ten-line suite on Redis takes.

python bench/plugin.py [--rounds 40] [--no-suite]

The first is pytest with and without the plugin on one empty test, in pairs whose order alternates: the median of the
differences in processor time, and its quartiles. The second is a suite of twelve cells, by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median, quantiles

RESULTS = Path(__file__).parent / "results" / "plugin.json"

SUITE = """
import json
import redis
from recollect.pytest_plugin import MemoryStoreSuite


class ListMemory:
    def __init__(self, url):
        self.client = redis.Redis.from_url(url, retry=None)

    def append_message(self, session, message):
        self.client.rpush(session, json.dumps(message))

    def get_history(self, session, limit=100):
        return [json.loads(raw) for raw in self.client.lrange(session, -limit, -1)]


class TestMemory(MemoryStoreSuite):
    engine = "redis"
    policy = ("aof-everysec", "rdb")
    fault = ("kill-engine", "power-loss", "restart", "kill-app", "lost-ack", "cut")

    @staticmethod
    def factory(endpoint):
        return ListMemory(endpoint.url)
"""


def pytest_s(folder: Path, *options: str) -> tuple[float, float, str]:
    """Processor time and time by the clock of one pytest, and what it said last."""
    before, began = getrusage(RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    after = getrusage(RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.monotonic() - began, done.stdout.strip().splitlines()[-1]


def start_ms(rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_empty.py").write_text("def test_nothing():\n    pass\n")
        pytest_s(folder)  # writes the bytecode
        without, added = [], []
        for number in range(rounds):
            order = [("-p", "no:recollect"), ()]
            spent = {
                options: pytest_s(folder, *options)[0] * 1000 for options in order[:: 1 - 2 * (number % 2)]
            }
            without.append(spent[order[0]])
            added.append(spent[()] - spent[order[0]])
    low, middle, high = quantiles(added, n=4)
    return {
        "without_ms": round(median(without), 1),
        "added_ms": round(middle, 1),
        "added_low_ms": round(low, 1),
        "added_high_ms": round(high, 1),
        "import_ms": round(min(import_ms() for _ in range(rounds)), 1),
    }


def import_ms() -> float:
    """What Python itself says about importing the plugin where pytest is imported already."""
    command = [sys.executable, "-X", "importtime", "-c", "import pytest, recollect.pytest_plugin"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    line = next(line for line in said.splitlines() if line.endswith("recollect.pytest_plugin"))
    return int(line.split("|")[1]) / 1000


def suite_s() -> dict[str, float | str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_memory.py").write_text(SUITE)
        _, took_s, last = pytest_s(folder, "--recollect-seed=7", "--tb=no")
    return {"suite_s": round(took_s, 1), "said": last, "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--no-suite", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, float | str] = {**start_ms(arguments.rounds)}
    print(
        f"pytest starts in {result['without_ms']} ms; the plugin adds {result['added_ms']} ms "
        f"(half of the pairs between {result['added_low_ms']} and {result['added_high_ms']}),"
    )
    print(f"by Python's own account its import takes {result['import_ms']} ms")
    if not arguments.no_suite:
        result |= suite_s()
        print(
            f"twelve cells on Redis: {result['suite_s']} s at a load of {result['load']} ({result['said']})"
        )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
