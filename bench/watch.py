"""Silent losses on live engines: is each told by name, by `recollect watch` within ten seconds, and by an audit later?

    python bench/watch.py [--only redis] [--workers 2]     every plant of watch_plants, each beside a real watch
    python bench/watch.py --healthy 60                     an hour of load with restarts: no alarm is right
    python bench/watch.py --overhead 60                    what a watch costs the engine, in processor time

A plant is told if the watch's own output has the alarm `TELL_S` after the harm was done. Whether a loss leaves a trace
that an audit can find depends on it: an engine that was emptied is only found with a witness, and a changed setting is
the doctor's. Results go to bench/results/watch.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.watch.beside import door

from recollect import Message, open_store
from recollect.audit import audit
from recollect.errors import RecollectError
from recollect.verify import engines
from recollect.verify.disk import Faults, Recorder
from recollect.verify.engines.options import EngineOptions
from watch_plants import PLANTS, Plant, Scene

RESULTS = Path(__file__).parent / "results" / "watch.json"
TELL_S = 10.0
SEEN_S = 5.0
"""How long everything is as it should be before the harm is done; more than what `rolled-back` takes for clocks."""
START_S = 120.0
OVERHEAD_MOST = 0.01


# ---- running


@asynccontextmanager
async def scene_of(
    engine: str, policy: str, *, replica: bool, folder: Path, recorded: bool = False
) -> AsyncIterator[Scene]:
    if engine == "sqlite":
        yield Scene(None, folder, f"sqlite:///{folder}/memory.db")
        return
    made: Any = engines.create(engine, policy, options=EngineOptions(start_timeout_s=START_S))
    await asyncio.to_thread(made.start)
    try:
        if recorded:
            await asyncio.to_thread(made.stop)
            with Recorder(made.data) as recorder:
                await asyncio.to_thread(made.start, recorder.env())
                yield Scene(made, folder, made.endpoint.socket_url, recorder=recorder)
                await asyncio.to_thread(made.kill)
            return
        if not replica:
            yield Scene(made, folder, made.endpoint.socket_url)
            return
        primary = [made.endpoint]
        async with door(lambda: (primary[0].host, primary[0].port)) as port:
            url = made.endpoint.url.replace(f":{made.endpoint.port}", f":{port}")
            yield Scene(made, folder, url, await asyncio.to_thread(made.replica), primary)
    finally:
        await asyncio.to_thread(made.close)


@asynccontextmanager
async def watching(scene: Scene, *words: str, aloud: bool = False) -> AsyncIterator[None]:
    """A watch as an operator starts it; its alarms with the time they were heard."""
    command = [
        sys.executable,
        "-m",
        "recollect",
        "watch",
        scene.url,
        "--memory",
        str(scene.folder / "watch.db"),
    ]
    if scene.replica is not None:
        command += ["--replica", scene.replica.endpoint.url, "--stale", "2"]
    process = await asyncio.create_subprocess_exec(*command, *words, stdout=asyncio.subprocess.PIPE)
    heard = asyncio.Event()

    async def listen() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "alarm":
                if aloud:  # an hour's alarms are not lost if its end is never reached
                    print(event, file=sys.stderr, flush=True)
                scene.alarms.append((time.monotonic(), event["name"]))
            heard.set()

    listening = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(START_S):
            await heard.wait()
        yield
    finally:
        if process.returncode is not None:
            scene.alarms.append((time.monotonic(), f"the watch ended with {process.returncode}"))
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await listening


@dataclass
class Result:
    plant: Plant
    told_s: float | None
    other: list[str]
    audited: list[str]

    @property
    def good(self) -> bool:
        told = self.told_s is not None and self.told_s <= TELL_S
        return told and (bool(self.audited) or not self.plant.trace)


async def planted(plant: Plant) -> Result:
    with tempfile.TemporaryDirectory(prefix="recollect-watch-") as name:
        folder = Path(name)
        async with scene_of(
            plant.engine, plant.policy, replica=plant.replica, folder=folder, recorded=plant.recorded
        ) as scene:
            await scene.application()
            async with watching(scene, *plant.watch):
                await asyncio.sleep(SEEN_S)
                if plant.before is not None:
                    await plant.before(scene)
                    await scene.application()
                    await asyncio.sleep(2 * SEEN_S)
                known = len(scene.alarms)
                scene.harmed_at = time.monotonic()
                await plant.harm(scene)
                told_at = await scene.told(known, plant.told, 3 * TELL_S)
                # A server that is down cannot be told about: its start is not the watch's.
                other = [name for at, name in scene.alarms[known:] if name != plant.told]
                if scene.recorder is not None:
                    scene.recorder.faults(Faults())
            told_s = None if told_at is None else told_at - scene.harmed_at
            return Result(plant, told_s, other, await audited(scene.url, scene.witness))


async def audited(url: str, witness: Path) -> list[str]:
    try:
        report = await audit(url, rate=None, witness=witness)
    except RecollectError as error:
        return [type(error).__name__]
    return sorted({finding.name for finding in report.findings if finding.level == "damage"})


async def all_planted(only: str, workers: int) -> list[Result]:
    chosen = [plant for plant in PLANTS if only in f"{plant.engine} {plant.name}"]
    free = asyncio.Semaphore(workers)

    async def one(plant: Plant) -> Result:
        async with free:
            result = await planted(plant)
        told = "not told" if result.told_s is None else f"{result.told_s:5.2f} s"
        mark = "✓" if result.good else "✗"
        also = f", also {', '.join(result.other)}" if result.other else ""
        by_audit = ", ".join(result.audited) or ("–" if not plant.trace else "nothing")
        print(
            f"{mark} {plant.engine:9}{plant.name:32}{plant.told:20}{told}{also} · audit: {by_audit}",
            flush=True,
        )
        return result

    return await asyncio.gather(*(one(plant) for plant in chosen))


# ---- healthy


async def healthy(minutes: float, pause_s: float) -> dict[str, dict[str, Any]]:
    """Load, restarts and crashes on engines that keep what they acknowledge."""
    kinds = [("redis", "aof-always"), ("postgres", "default"), ("sqlite", "wal-full")]
    each = await asyncio.gather(*(_healthy_one(*kind, minutes * 60, pause_s) for kind in kinds))
    return {engine: result for (engine, _), result in zip(kinds, each, strict=True)}


async def _healthy_one(engine: str, policy: str, seconds: float, pause_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="recollect-watch-") as name:
        async with (
            scene_of(engine, policy, replica=False, folder=Path(name)) as scene,
            AsyncExitStack() as held,
        ):
            async with open_store(scene.url):
                pass  # a watch does not make the file
            await held.enter_async_context(watching(scene, aloud=True))
            until, restarted = time.monotonic() + seconds, 0
            loading = asyncio.create_task(_load(scene.url, until, pause_s))
            while time.monotonic() < until:
                await asyncio.sleep(min(20.0, max(0.0, until - time.monotonic())))
                if scene.engine is not None and time.monotonic() < until:
                    await asyncio.to_thread(scene.engine.stop if restarted % 2 else scene.engine.kill)
                    await asyncio.to_thread(scene.engine.start)
                    if engine == "redis":  # else a start takes longer and longer, up to the watch's patience
                        await asyncio.to_thread(scene.redis().bgrewriteaof)
                    restarted += 1
            calls = await loading
            await asyncio.sleep(3)
        names = [name for _, name in scene.alarms]  # after its end: a watch that died is silent too
        print(f"{engine}: {seconds:.0f} s, {calls:,} calls, {restarted} restarts, alarms: {names or 'none'}")
        return {"policy": policy, "calls": calls, "restarts": restarted, "alarms": names}


async def _load(url: str, until: float, pause_s: float) -> int:
    calls = 0
    while time.monotonic() < until:
        try:
            async with open_store(url, timeout_s=5) as store:
                while time.monotonic() < until:
                    session = f"s{calls % 50}"
                    await store.append(session, [Message("user", f"message {calls}")])
                    await store.history(session, last=20)
                    if calls % 97 == 0:
                        await store.forget(session)
                    calls += 1
                    await asyncio.sleep(pause_s)
        except RecollectError:  # it is being restarted
            await asyncio.sleep(0.2)
    return calls


# ---- overhead


def processor_s() -> float:
    """Of all servers that this process started, with what their children used."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.name().startswith(("redis", "valkey", "postgres")):
                times = process.cpu_times()
                total += times.user + times.system
                if not process.parent() or not process.parent().name().startswith("postgres"):  # type: ignore[union-attr]
                    total += times.children_user + times.children_system
    return total


async def overhead(seconds: float) -> dict[str, float]:
    shares = {}
    for engine, policy in (("redis", "aof-everysec"), ("postgres", "default")):
        with tempfile.TemporaryDirectory(prefix="recollect-watch-") as name:
            async with scene_of(engine, policy, replica=False, folder=Path(name)) as scene:
                idle = await _share(seconds)
                async with watching(scene):
                    await asyncio.sleep(5)  # the schema is made, connections are open
                    watched = await _share(seconds)
        shares[engine] = watched - idle
        print(f"{engine}: {100 * idle:.2f} % of a core idle, {100 * watched:.2f} % with a watch")
    return shares


async def _share(seconds: float) -> float:
    before, began = processor_s(), time.monotonic()
    await asyncio.sleep(seconds)
    return (processor_s() - before) / (time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="plants whose engine and name contain this")
    parser.add_argument("--workers", type=int, default=2, help="plants at once")
    parser.add_argument("--healthy", type=float, metavar="MINUTES", help="load with restarts instead")
    parser.add_argument(
        "--pause", type=float, default=0.01, metavar="SECONDS", help="between two calls of that load"
    )
    parser.add_argument("--overhead", type=float, metavar="SECONDS", help="the cost for the engine instead")
    arguments = parser.parse_args()
    logging.getLogger("recollect").setLevel(logging.ERROR)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.healthy:
        engines_kept = asyncio.run(healthy(arguments.healthy, arguments.pause))
        bad = sum(len(one["alarms"]) for one in engines_kept.values())
        kept["healthy"] = {"minutes": arguments.healthy, "alarms": bad, "engines": engines_kept}
    elif arguments.overhead:
        shares = asyncio.run(overhead(arguments.overhead))
        kept["overhead"] = {engine: round(share, 4) for engine, share in shares.items()}
        bad = sum(share > OVERHEAD_MOST for share in shares.values())
    else:
        results = asyncio.run(all_planted(arguments.only, arguments.workers))
        rows = {
            f"{result.plant.engine}: {result.plant.name}": {
                "alarm": result.plant.told,
                "told_s": None if result.told_s is None else round(result.told_s, 2),
                "audit": result.audited,
            }
            for result in results
        }
        kept["planted"] = {**(kept.get("planted", {}) if arguments.only else {}), **rows}
        bad = sum(not result.good for result in results)
        print(f"{len(results) - bad} of {len(results)} told")
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
