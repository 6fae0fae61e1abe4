"""Our stores beside the raw drivers and the peers, on the same engines, in one run: `make bench`.

Appending and reading the last hundred messages, as ratios to the raw driver with the same durability (see `measuring`
for how, and `contenders` for whom). Nothing here fails on a number: the verdict says what was reached and what was not.
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import platform
import sqlite3
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console

from contenders.apart import OursWithApi, OursWithoutApi
from contenders.contender import RECORD, Contender, Place
from contenders.ours import Ours, OursObserved
from contenders.raw import (
    RawPostgres,
    RawPostgresDecoding,
    RawRedis,
    RawRedisDecoding,
    RawSqlite,
    RawSqliteDecoding,
    RawSqliteInTurn,
)
from measuring import FULL, QUICK, Effort, measure
from recollect.verify import engines
from regressions import worse
from reporting import EngineResult, as_json, findings, print_table, print_verdict

RESULTS = Path(__file__).parent / "results" / "stores.json"

POLICIES = {"redis": "aof-everysec", "postgres": "default", "sqlite": "wal-full"}

LOAD_MAX = 1.0
"""Of others' work, when the benchmark starts. More than this, and its columns with several clients say little."""

STANDING: dict[str, list[type[Contender]]] = {
    "redis": [RawRedis, RawRedisDecoding, Ours, OursObserved, OursWithApi, OursWithoutApi],
    "postgres": [RawPostgres, RawPostgresDecoding, Ours, OursObserved, OursWithApi, OursWithoutApi],
    "sqlite": [
        RawSqlite,
        RawSqliteDecoding,
        Ours,
        OursObserved,
        OursWithApi,
        OursWithoutApi,
        RawSqliteInTurn,
    ],
}

PEERS: dict[str, list[tuple[str, str]]] = {
    "redis": [("agents_sdk", "AgentsRedis"), ("langchain", "LangchainRedis")],
    "postgres": [
        ("agents_sdk", "AgentsSqlAlchemyPostgres"),
        ("langchain", "LangchainPostgres"),
        ("langgraph", "LanggraphPostgres"),
    ],
    "sqlite": [
        ("agents_sdk", "AgentsSqlite"),
        ("agents_sdk", "AgentsSqlAlchemySqlite"),
        ("langgraph", "LanggraphSqlite"),
    ],
}
"""Module and class, imported only when wanted: a peer that is not installed is reported, and the rest runs."""

PACKAGES = (
    "redis",
    "asyncpg",
    "msgspec",
    "openai-agents",
    "langchain-community",
    "langchain-postgres",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite",
)


def main() -> int:
    arguments = _arguments()
    earlier = None if arguments.against is None else json.loads(arguments.against.read_text())
    logging.getLogger("recollect").setLevel(logging.ERROR)  # what an engine may lose is in the table's notes
    warnings.simplefilter("ignore")  # of the peers, about themselves
    console = Console(width=max(180, Console().width))
    effort = QUICK if arguments.quick else FULL
    started, load_before = time.monotonic(), os.getloadavg()[0]
    results = []
    for engine in arguments.engine or list(POLICIES):
        results.append(asyncio.run(_run_engine(engine, effort, peers=not arguments.no_peers)))
        print_table(console, results[-1])
    found = list(findings(results))
    print_verdict(console, found)
    if load_before > LOAD_MAX:
        console.print(
            f"The machine was busy before we began (load {load_before:.1f}): a contender with more processes then gets "
            "more of it, which favours the raw driver with its many connections. Run again when it is quiet."
        )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    report = as_json(results, found, _machine(effort, load_before))
    arguments.output.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    console.print(f"{time.monotonic() - started:.0f} s; written to {arguments.output}", highlight=False)
    if earlier is None:
        return 0
    fallen = worse(report, earlier)
    for sentence in fallen:
        console.print(f"worse than before: {sentence}", highlight=False)
    return 1 if fallen else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: about a minute")
    parser.add_argument("--no-peers", action="store_true", help="only our stores and the raw drivers")
    parser.add_argument(
        "--engine", action="append", choices=list(POLICIES), help="only this engine; may be repeated"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument(
        "--against",
        type=Path,
        help="the JSON of an earlier run: exit code 1 if a figure of ours is worse now",
    )
    return parser.parse_args()


async def _run_engine(name: str, effort: Effort, *, peers: bool) -> EngineResult:
    with tempfile.TemporaryDirectory(prefix="recollect-bench-") as folder:
        engine = None
        if name == "sqlite":
            url, description = "", f"SQLite {sqlite3.sqlite_version}, {POLICIES[name]}"
        else:
            engine = engines.create(name, POLICIES[name])
            endpoint = engine.start()
            if name == "postgres":
                endpoint = await _allow_connections(engine, endpoint)
            url, description = endpoint.url, f"{endpoint.product} {endpoint.version}, {endpoint.policy}"
        try:
            return await _run_contenders(Place(name, url, Path(folder)), description, effort, peers=peers)
        finally:
            if engine is not None:
                engine.close()


async def _allow_connections(engine: engines.Engine, endpoint: engines.Endpoint) -> engines.Endpoint:
    """The raw driver's, ours and the peers' together are more than PostgreSQL's default of 100."""
    connection = await asyncpg.connect(endpoint.url)
    await connection.execute("ALTER SYSTEM SET max_connections = 200")
    await connection.close()
    engine.stop()
    return engine.start()


async def _run_contenders(place: Place, description: str, effort: Effort, *, peers: bool) -> EngineResult:
    skipped: dict[str, str] = {}
    opened: list[Contender] = []
    try:
        for kind in STANDING[place.engine]:
            await _open(kind, place, opened)
        for module, name in PEERS[place.engine] if peers else ():
            try:
                kind = getattr(importlib.import_module(f"contenders.{module}"), name)
                await _open(kind, place, opened)
            except Exception as error:  # whatever a peer does, the others are measured
                skipped[name] = f"{type(error).__name__}: {error}"
        rates = await measure(opened, effort, lambda text: _say(f"{place.engine}: {text}"))
    finally:
        for contender in opened:
            await contender.close()
    return EngineResult(place.engine, description, opened, rates, skipped)


async def _open(kind: type[Contender], place: Place, opened: list[Contender]) -> None:
    contender = kind(place)
    await contender.open()
    opened.append(contender)


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _machine(effort: Effort, load_before: float) -> dict[str, Any]:
    return {
        "processors": os.cpu_count(),
        "load_before": round(load_before, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "record_bytes": len(RECORD),
        "effort": asdict(effort),
        "packages": _versions(PACKAGES),
    }


def _versions(packages: Sequence[str]) -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


if __name__ == "__main__":
    sys.exit(main())
