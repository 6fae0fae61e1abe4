"""What OpenTelemetry costs those who have it installed and do not use it, in processor time.

    python bench/unobserved.py [--pairs 12] [--calls 1500]

Processes in turn, each with a store of its own on SQLite: in one the package `opentelemetry` can be imported, in the
other it cannot. Rates depend on whoever else is on the machine; processor time much less. Each pair gives one ratio.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results" / "unobserved.json"
MOST = 1.02

CALLS = """
import asyncio, sys, tempfile, time
if sys.argv[1] == "absent":
    sys.modules["opentelemetry"] = None
else:
    import opentelemetry.trace, opentelemetry.metrics
from recollect import Message, open_store

async def main(calls):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        async with open_store(f"sqlite:///{folder}/memory.db") as store:
            for number in range(calls // 5):
                await store.append("warm", [Message("user", "hello")])
            began = time.process_time()
            for number in range(calls):
                await store.append(f"s{number % 20}", [Message("user", "hello")])
                await store.history(f"s{number % 20}", last=20)
            print(time.process_time() - began)

asyncio.run(main(int(sys.argv[2])))
"""


def cpu_s(how: str, calls: int) -> float:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CALLS, how, str(calls)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--calls", type=int, default=1_500)
    arguments = parser.parse_args()
    ratios = []
    for number in range(arguments.pairs):
        order = ("there", "absent") if number % 2 else ("absent", "there")
        took = {how: cpu_s(how, arguments.calls) for how in order}
        ratios.append(took["there"] / took["absent"])
        print(f"{took['there']:.3f} s with, {took['absent']:.3f} s without: × {ratios[-1]:.3f}", flush=True)
    ratios.sort()
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    found = {
        "pairs": len(ratios),
        "median": round(median(ratios), 3),
        "quartiles": [round(low, 3), round(high, 3)],
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(found)
    return int(low > MOST)


if __name__ == "__main__":
    sys.exit(main())
