"""What the engine keeps is taken away: its volume, or keys that it evicts."""

from __future__ import annotations

import shutil
from pathlib import Path

from recollect.verify.running.faults.consoles import redis_console
from recollect.verify.running.faults.fault import Fault, Injection, Witnessed, only, ours_only, reachable_data
from recollect.verify.running.faults.faulted_run import FaultedRun
from recollect.verify.running.scenario import Scenario
from recollect.verify.wire.resp import fields_of

INDEX = "index"
"""Only the files of the vector index, under a running engine."""
_DATABASE, _VECTORS = "chroma.sqlite3", "data_level0.bin"


def data_folder(run: FaultedRun) -> Path:
    path = run.endpoint.path
    if path is None:
        return reachable_data(run)
    return path if path.is_dir() else path.parent


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


class WipeVolume(Witnessed):
    def strike(self) -> None:
        run, variant = self.run, self.run.scenario.variant
        # A container's volume is recycled with the container.
        running = variant != "between-runs" and run.endpoint.path is not None
        only_index = variant == INDEX
        delete, wipe = (_without_chroma, _wipe_chroma) if only_index else (empty, _wipe)
        with run.striking("wipe-volume", INDEX if only_index else "running" if running else "between-runs"):
            if not running:
                run.stop_engine()
            else:
                delete(data_folder(run))
                run.go_on(run.scenario.before_s / 2)
                run.kill_engine()
            wipe(run)
            run.start_engine()
            run.restart_clients()


def _wipe(run: FaultedRun) -> None:
    """Removes whatever is left, and makes what the engine needs to start at all, as on a new volume."""
    if run.engine.embedded:
        empty(data_folder(run))
    else:
        run.engine.wipe()


def _without_chroma(folder: Path) -> None:
    """Removes what Chroma made, wherever below the folder it is; what a store keeps beside it stays."""
    for database in list(folder.rglob(_DATABASE)):
        for path in list(database.parent.iterdir()):
            if path.name.startswith(_DATABASE):
                path.unlink(missing_ok=True)
            elif path.is_dir() and (path / _VECTORS).exists():
                shutil.rmtree(path, ignore_errors=True)


def _wipe_chroma(run: FaultedRun) -> None:
    _without_chroma(data_folder(run))


def _wipe_obstacle(scenario: Scenario) -> str | None:
    if scenario.variant == INDEX:
        return ours_only(scenario) or only(
            "chroma", why="only Chroma's files are an index of something else"
        )(scenario)
    return ours_only(scenario)


class Evict(Injection):
    def strike(self) -> None:
        run, engine = self.run, redis_console(self.run.endpoint)
        memory = fields_of(engine.ask("INFO", "memory"))
        used, dataset = int(memory["used_memory"]), int(memory["used_memory_dataset"])
        with run.striking("evict"):
            engine.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            engine.ask("CONFIG", "SET", "maxmemory", str(used - dataset // 8))
            run.go_on(run.scenario.before_s / 4)
            engine.ask("CONFIG", "SET", "maxmemory", "0")


def _evict_obstacle(scenario: Scenario) -> str | None:
    return ours_only(scenario) or only("redis", why="only Redis evicts")(scenario)


STORAGE_FAULTS = (
    Fault(
        "wipe-volume",
        WipeVolume,
        verifies="a recycled volume is noticed: an error is raised instead of a cheerful empty memory",
        does_not_verify="that the data comes back: it is gone, and only a backup has it",
        obstacle=_wipe_obstacle,
        variants=("", "between-runs", INDEX),
        on_groups=("", "between-runs"),
    ),
    Fault(
        "evict",
        Evict,
        verifies="an engine that reaches its memory limit and evicts keys does not silently shorten memory",
        does_not_verify="that nothing is evicted: with an eviction policy the engine does what it was told",
        obstacle=_evict_obstacle,
    ),
)
