"""Which fault runs where: each once, natively, in a container and as a service of a compose file.

Usage: python bench/environments.py [--only FAULT …] [--engine redis] [--in compose] [--missing] [--workers 3]

Our own stores on Redis and PostgreSQL, with policies that lose nothing. Images are made from the binaries of this
machine, on the Docker daemon that answers, or on one started here (root, docker.io). What ran, what came out and why
others were skipped goes to bench/results/environments.json, beside what earlier calls found. Prints the table
that docs/engines.md has, and exits with 1 if a correct store was accused, or if a cell broke off.

The last column is `service_under_test`: there a test calls the method, so it says which one that is, and
tests/service tries them.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.faults.cells import POLICIES, WEEK_S
from tests.providers import docker_daemon
from tests.providers.conftest import IMAGES, POSTGRES_16, REDIS_7, make_images, remove_images

from recollect.verify.running.faults import FAULTS
from recollect.verify.running.faults.groups import GROUP_FAULTS
from recollect.verify.running.run import Run
from recollect.verify.running.scenario import Scenario
from recollect.verify.suite.service import Service
from recollect.verify.suite.service_engine import EngineLink

RESULTS = Path(__file__).parent / "results" / "environments.json"
ENVIRONMENTS = ("native", "docker", "compose")
ENGINES = {"redis": "redis@7", "postgres": "postgres@16"}
MOMENTS = ("bgsave", "bgrewriteaof", "after-snapshot", "between-writes")
MADE = {**IMAGES, "postgres@18": "recollect-test-postgres:18"}
"""Two versions of each engine, for upgrades."""
FINE = ("held", "documented-loss", "skipped")

FILE = f"""
version: "2.4"
services:
  redis:
    image: {REDIS_7}
    command: redis-server --appendonly yes --appendfsync always --save "" --protected-mode no
    ports: ["6379:6379"]
    volumes: ["memory:/data"]
  postgres:
    image: {POSTGRES_16}
    environment: {{POSTGRES_USER: app, POSTGRES_PASSWORD: secret, POSTGRES_DB: chats}}
    ports: ["5432:5432"]
    volumes: ["rows:/var/lib/postgresql"]
volumes:
  memory: {{}}
  rows: {{}}
"""

SERVICE = {
    "restart": (Service.restart,),
    "kill-engine": (Service.kill, Service.kill_after_response),
    "kill-app": (Service.kill, Service.stop_during_response),
    "pause": (Service.pause,),
    "power-loss": (Service.power_loss, Service.power_loss_after_response),
    "slow-fsync": (Service.slow_fsync,),
    "fsync-error": (Service.failing_fsync,),
    "disk-full": (Service.disk_full,),
    "wipe-volume": (Service.wipe,),
    "lost-ack": (Service.drop_response,),
    "latency": (Service.latency, EngineLink.latency),
    "cut": (Service.cut, EngineLink.cut),
    "half-open": (EngineLink.silent,),
    "newer-writer": (Service.rolling_restart,),
}
"""The methods of a service that do what the fault does."""
CLOCKS = ("clock-back", "clock-frozen", "clock-forward")


@dataclass(frozen=True, order=True)
class Cell:
    row: str
    """The fault, with its variant after an @."""
    engine: str
    environment: str

    @property
    def key(self) -> str:
        return f"{self.engine} {self.environment} {self.row}"

    def scenario(self, file: Path) -> Scenario:
        fault, _, variant = self.row.partition("@")
        in_a_file = self.environment == "compose"
        # A compose service has the version of its image, and upgrade begins there; elsewhere it takes the first pair.
        anywhere = in_a_file or fault in ("upgrade", "downgrade")
        return Scenario(
            target=self.engine,
            engine=self.engine if anywhere else ENGINES[self.engine],
            policy="custom" if in_a_file else POLICIES[self.engine],
            fault=fault,
            variant=variant or FAULTS[fault].variants[0],
            provider={"native": None, "docker": "docker", "compose": f"compose:{file}#{self.engine}"}[
                self.environment
            ],
            seed=1,
            retain_s=WEEK_S,
        )


def rows() -> list[str]:
    of_groups = {fault.name for fault in GROUP_FAULTS}
    names = [name for name in FAULTS if name not in of_groups]
    at = names.index("kill-engine") + 1
    return [*names[:at], *(f"kill-engine@{moment}" for moment in MOMENTS), *names[at:]]


def run(cell: Cell, file: Path, folder: Path) -> dict[str, Any]:
    """In a process of its own: what it leaves behind goes with it."""
    scenario = cell.scenario(file)
    began = time.monotonic()
    reason = FAULTS[scenario.fault].obstacle(scenario)
    if reason is not None:
        status, anomalies = "skipped", []
    else:
        folder.mkdir(parents=True)
        verdict = Run(scenario, folder).execute()
        status, reason = str(verdict.status), verdict.reason
        anomalies = sorted({anomaly.name for anomaly in verdict.anomalies})
    return {
        "status": status,
        "reason": reason,
        "anomalies": anomalies,
        "seconds": round(time.monotonic() - began, 1),
        "at": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def run_all(cells: Iterable[Cell], workers: int, found: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="recollect-environments-") as home, docker_daemon.available():
        file = Path(home) / "compose.yaml"
        file.write_text(FILE)
        make_images(MADE)
        try:
            with ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=1) as pool:
                asked = {
                    pool.submit(run, cell, file, Path(home) / cell.key.replace(" ", "-")): cell
                    for cell in cells
                }
                for done in as_completed(asked):
                    cell = asked[done]
                    found[cell.key] = outcome = _outcome(done)
                    print(f"{cell.key:45} {outcome['status']:16} {outcome['reason'] or ''}", file=sys.stderr)
                    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        finally:
            remove_images(MADE)


def _outcome(done: Any) -> dict[str, Any]:
    try:
        outcome: dict[str, Any] = done.result()
    except Exception as error:  # a cell that raises is a finding, and the others go on
        return {
            "status": "broken",
            "reason": f"{type(error).__name__}: {error}",
            "anomalies": [],
            "seconds": 0,
        }
    return outcome


def table(found: dict[str, Any]) -> str:
    """As Markdown, with the reasons below it. Empty: never run."""
    reasons: list[str] = []
    head = [f"{engine} {environment}" for engine, environment in product(ENGINES, ENVIRONMENTS)]
    lines = [f"| fault | {' | '.join(head)} | service |", "|---" * (len(head) + 2) + "|"]
    for row in rows():
        if not any(Cell(row, *place).key in found for place in product(ENGINES, ENVIRONMENTS)):
            continue
        shown = [
            _shown(found.get(Cell(row, engine, environment).key), reasons)
            for engine, environment in product(ENGINES, ENVIRONMENTS)
        ]
        lines.append(f"| `{row}` | {' | '.join(shown)} | {_of_service(row)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))])


def _shown(outcome: dict[str, Any] | None, reasons: list[str]) -> str:
    if outcome is None:
        return ""
    if outcome["status"] != "skipped":
        return {"held": "✓", "documented-loss": "✓ loss"}.get(outcome["status"], f"**{outcome['status']}**")
    if outcome["reason"] not in reasons:
        reasons.append(outcome["reason"])
    return f"– ({reasons.index(outcome['reason']) + 1})"


def _of_service(row: str) -> str:
    if row in CLOCKS:
        return "`clock`"
    return ", ".join(f"`{method.__qualname__.replace('Service.', '').replace('EngineLink', 'engine')}`"
                     for method in SERVICE.get(row, ())) or "–"  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=rows(), metavar="FAULT")
    parser.add_argument("--engine", nargs="*", default=list(ENGINES), choices=ENGINES)
    parser.add_argument(
        "--in", dest="environment", nargs="*", default=list(ENVIRONMENTS), choices=ENVIRONMENTS
    )
    parser.add_argument("--missing", action="store_true", help="only what has no result yet, or broke off")
    parser.add_argument("--workers", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    cells = [
        Cell(row, engine, environment)
        for environment in options.environment
        for engine in options.engine
        for row in options.only
    ]
    if options.missing:
        cells = [cell for cell in cells if found.get(cell.key, {"status": "broken"})["status"] == "broken"]
    run_all(cells, options.workers, found)
    print(table(found))
    wrong = [cell.key for cell in cells if found[cell.key]["status"] not in FINE]
    print(f"{len(cells)} cells, {len(wrong)} wrong: {', '.join(wrong) or 'none'}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
