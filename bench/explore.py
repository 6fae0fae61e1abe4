"""How many crash states of a recorded run are tried a second: found, laid out, recovered by the engine, judged.

Fifty rows are written by a probe, and the states explored by two workers until the budget ends. The rate
counts everything from the first state found to the last one judged.

    python bench/explore.py [--level 2] [--budget 15] [--only redis]
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass

from recollect.verify.disk import MODES
from recollect.verify.disk.exploring import Plan, explore
from recollect.verify.disk.probes import numbers_check
from recollect.verify.disk.recovery import never_read
from recollect.verify.disk.run import Enough, RecordedRun

ROWS = 50


@dataclass(frozen=True)
class Case:
    spec: str
    policy: str
    wanted: float
    """States a second, on two cores."""


CASES = (
    Case("sqlite", "wal-full", 2500),
    Case("sqlite", "wal-normal", 2500),
    Case("redis", "aof-always", 200),
    Case("redis", "aof-everysec", 200),
    Case("postgres@18", "default", 15),
    Case("chroma", "embedded", 60),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", type=int, default=2)
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--mode", choices=MODES, default="ext4")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="the cases whose engine begins like this")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    slow = 0
    for case in (case for case in CASES if case.spec.startswith(arguments.only)):
        with RecordedRun(case.spec, case.policy, skip_sync=True) as run:
            began = run.recorder.count
            run.write(Enough(rows=ROWS))
            run.engine.kill()
            base, records = run.recorder.base, run.records()
        plan = Plan(
            arguments.mode,
            arguments.level,
            workers=arguments.workers,
            budget_s=arguments.budget,
            start=began,
            exclude=never_read(case.spec),
        )
        before = sum(os.times()[:4])
        found = explore(base, records, numbers_check(case.spec, case.policy), plan)
        cpu_s = sum(os.times()[:4]) - before
        tried = len(found.findings)
        rate = tried / found.elapsed_s
        slow += rate < case.wanted
        print(
            f"{case.spec:12} {case.policy:13} {tried:6} of {len(found.states):6} states in {found.elapsed_s:6.2f} s"
            f" = {rate:7.1f}/s (wanted {case.wanted:g}) {'ok' if rate >= case.wanted else 'TOO SLOW'};"
            f" {cpu_s / max(tried, 1) * 1e3:.2f} ms of the workers' own CPU each; {dict(found.counts)}",
            flush=True,
        )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
