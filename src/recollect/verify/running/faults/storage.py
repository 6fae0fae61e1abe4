"""The storage under the engine: recycled, or full of other things."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.verify.running.faults.fault import Fault, give_witness, only, ours_only
from recollect.verify.running.scenario import Scenario

if TYPE_CHECKING:
    from recollect.verify.running.run import Run

INDEX = "index"
"""Only the files of the vector index, under a running engine."""
_DATABASE, _VECTORS = "chroma.sqlite3", "data_level0.bin"


def _data_folder(run: Run) -> Path:
    path = run.endpoint.path
    assert path is not None, "only of an engine whose files are on this machine"
    return path if path.is_dir() else path.parent


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _wipe_volume(run: Run) -> None:
    # A container's folder cannot be reached from here: its volume is recycled with the container.
    running = run.scenario.variant != "between-runs" and run.endpoint.path is not None
    only_index = run.scenario.variant == INDEX
    delete, wipe = (_without_chroma, _wipe_chroma) if only_index else (_empty, _wipe)
    with run.striking("wipe-volume", INDEX if only_index else "running" if running else "between-runs"):
        if not running:
            run.stop_engine()
            wipe(run)
        else:
            delete(_data_folder(run))
            run.go_on(run.scenario.before_s / 2)
            run.kill_engine()
            wipe(run)
        run.start_engine()
        run.restart_clients()


def _wipe(run: Run) -> None:
    """Whatever is left, and what the engine needs to start at all, as on a new volume."""
    if run.engine.embedded:
        _empty(_data_folder(run))
    else:
        run.engine.wipe()


def _without_chroma(folder: Path) -> None:
    """Takes away what Chroma made, wherever below the folder it is; what a store keeps beside it stays."""
    for database in list(folder.rglob(_DATABASE)):
        for path in list(database.parent.iterdir()):
            if path.name.startswith(_DATABASE):
                path.unlink(missing_ok=True)
            elif path.is_dir() and (path / _VECTORS).exists():
                shutil.rmtree(path, ignore_errors=True)


def _wipe_chroma(run: Run) -> None:
    _without_chroma(_data_folder(run))


def _wipe_obstacle(scenario: Scenario) -> str | None:
    if scenario.variant == INDEX:
        return ours_only(scenario) or only(
            "chroma", why="only Chroma's files are an index of something else"
        )(scenario)
    return ours_only(scenario)


def _evict(run: Run) -> None:
    from recollect.verify.engines.redis import RedisEngine

    if not isinstance(run.engine, RedisEngine):
        run.skip("only a Redis that runs as a process of this machine is given a limit")
    used, dataset = (int(_info(run.engine, field)) for field in ("used_memory", "used_memory_dataset"))
    with run.striking("evict"):
        run.engine.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        run.engine.ask("CONFIG", "SET", "maxmemory", str(used - dataset // 8))
        run.go_on(run.scenario.before_s / 4)
        run.engine.ask("CONFIG", "SET", "maxmemory", "0")


def _evict_obstacle(scenario: Scenario) -> str | None:
    return ours_only(scenario) or only("redis", why="only Redis evicts")(scenario)


def _info(engine: object, field: str) -> str:
    text = engine.ask("INFO", "memory")  # type: ignore[attr-defined]
    lines = (text.decode() if isinstance(text, bytes) else str(text)).splitlines()
    return next(line.partition(":")[2] for line in lines if line.startswith(f"{field}:"))


STORAGE_FAULTS = (
    Fault(
        "wipe-volume",
        _wipe_volume,
        verifies="a recycled volume is noticed: an error is raised instead of a cheerful empty memory",
        does_not_verify="that the data comes back: it is gone, and only a backup has it",
        obstacle=_wipe_obstacle,
        attach=give_witness,
        variants=("", "between-runs", INDEX),
    ),
    Fault(
        "evict",
        _evict,
        verifies="an engine that runs out of its memory limit and evicts keys does not silently shorten memory",
        does_not_verify="that nothing is evicted: with an eviction policy the engine does what it was told",
        obstacle=_evict_obstacle,
    ),
)
