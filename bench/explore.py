"""How many crash states of a recorded run are tried a second: found, laid out, recovered by the engine, judged.

Rows are written by a probe, and the states explored by two workers until the budget ends. The rate counts everything
from the first state found to the last one judged, the workers' start included; so a case has the level and the rows
that give it a second's work or so. Each case runs several times: the median counts, slowest and fastest are shown.

Then our three stores, explored as `recollect explore` does it (level 2, 50 messages, both modes), which together may
take a minute; and what a prestarted Redis saves over one that is started for each state, in turns.

    python bench/explore.py [--level 3] [--budget 15] [--rounds 3] [--only redis]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.disk.probes import NumbersCheck, numbers_check
from tests.disk.recorded_run import Enough, RecordedRun

from recollect.verify.disk import MODES
from recollect.verify.disk.exploring import Exploration, ExplorePlan, explore
from recollect.verify.disk.recovery import RedisRecovery, ServerRecovery, home, never_read
from recollect.verify.disk.states import State, states
from recollect.verify.explore import exploration
from recollect.verify.explore.exploration import TargetCheck
from recollect.verify.explore.resuming import explore_run

WORKERS = 2
OURS = (("sqlite", "wal-full"), ("redis", "aof-always"), ("postgres", "default"))
OURS_MAX_S = 60.0
_TURN_STATES = 16


@dataclass(frozen=True)
class Case:
    spec: str
    policy: str
    wanted: float
    """States a second, on two cores."""
    rows: int = 50
    level: int = 2


CASES = (
    Case("sqlite", "wal-full", 2500, level=3),
    Case("sqlite", "wal-normal", 2500),
    Case("redis", "aof-always", 200, rows=200),
    Case("redis", "aof-everysec", 200, rows=200),
    Case("postgres@18", "default", 15),
    Case("chroma", "embedded", 60),
)


def explored(case: Case, level: int, budget_s: float, rounds: int) -> tuple[list[Exploration], float]:
    """Each round's exploration, and the CPU seconds that this process and its workers took for a state."""
    with RecordedRun(case.spec, case.policy, skip_sync=True) as run:
        start = run.recorder.count
        run.write(Enough(rows=case.rows))
        run.engine.kill()
        base, records = run.recorder.base, run.records()
    plan = ExplorePlan(
        "ext4", level, workers=WORKERS, budget_s=budget_s, start=start, exclude=never_read(case.spec)
    )
    check = numbers_check(case.spec, case.policy)
    before = sum(os.times()[:4])
    found = [explore(base, records, check, plan) for _ in range(rounds)]
    tried = sum(len(one.judgements) for one in found)
    return found, (sum(os.times()[:4]) - before) / max(tried, 1)


def show_case(case: Case, level: int, budget_s: float, rounds: int) -> bool:
    found, cpu_s = explored(case, level, budget_s, rounds)
    rates = [len(one.judgements) / one.elapsed_s for one in found]
    rate = statistics.median(rates)
    print(
        f"{case.spec:12} {case.policy:13} {case.rows:4} rows, level {level}: {len(found[0].judgements):6} of"
        f" {len(found[0].states):6} states, {rate:7.1f}/s ({min(rates):.0f} … {max(rates):.0f}, wanted {case.wanted:g})"
        f" {'ok' if rate >= case.wanted else 'TOO SLOW'}; {cpu_s * 1e3:.2f} ms of our own CPU each;"
        f" {dict(found[0].counts)}",
        flush=True,
    )
    return rate >= case.wanted


def show_ours(only: str) -> bool:
    total_s = 0.0
    for store, policy in (pair for pair in OURS if pair[0].startswith(only)):
        with tempfile.TemporaryDirectory() as made:
            folder, place = Path(made), home()
            began = time.monotonic()
            run = exploration.record(store, store, policy, messages=50, folder=folder)
            told = []
            for mode in MODES:
                plan = ExplorePlan(mode, 2, WORKERS, None, run.about.start, never_read(store))
                done = explore_run(run, folder, plan, lambda: TargetCheck(run, folder / "log", place))  # noqa: B023
                told.append(f"{mode} {done.tally.judged} states, {done.tally.violated} violated")
            took_s = time.monotonic() - began
        total_s += took_s
        print(
            f"our {store:9} {policy:13} level 2, 50 messages: {', '.join(told)}; {took_s:.1f} s", flush=True
        )
    print(
        f"together {total_s:.1f} s (at most {OURS_MAX_S:g}) {'ok' if total_s <= OURS_MAX_S else 'TOO SLOW'}"
    )
    return total_s <= OURS_MAX_S


def show_prestart(turns: int) -> None:
    with RecordedRun("redis", "aof-always", skip_sync=True) as run:
        run.write(Enough(rows=100))
        run.engine.kill()
        found = states(run.recorder.base, run.records(), "ext4", 2)
    place = home()
    checks = []
    for name, way in (("started", ServerRecovery), ("copied", RedisRecovery)):
        (place / name).mkdir(0o711)
        check = NumbersCheck("redis", "aof-always", place)
        check._recovery.close()
        check._recovery = way("redis", "aof-always", place / name, 1 << 30)
        checks.append(check)
    ratios = []
    for turn in range(turns + 1):
        share = found[turn * _TURN_STATES % len(found) :][:_TURN_STATES]
        took = [timed(check, share) for check in checks]
        if turn:  # the first starts the template
            ratios.append(took[0] / took[1])
    for check in checks:
        check.close()
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    print(
        f"redis: a copied server takes 1/{statistics.median(ratios):.1f} of the time of a started one"
        f" (10 % … 90 % of {turns} turns: {tenths[0]:.1f} … {tenths[-1]:.1f})"
    )


def timed(check: NumbersCheck, share: Sequence[State]) -> float:
    began = time.perf_counter()
    for state in share:
        check.check(state.image, [])
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", type=int, help="for all cases, instead of their own")
    parser.add_argument("--budget", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="the cases whose engine begins like this")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start, {WORKERS} workers")
    good = [
        show_case(case, arguments.level or case.level, arguments.budget, arguments.rounds)
        for case in CASES
        if case.spec.startswith(arguments.only)
    ]
    if arguments.only in ("", "redis"):
        show_prestart(turns=12)
    good.append(show_ours(arguments.only))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
