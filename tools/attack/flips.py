"""One flipped bit in an engine's data files: what comes back is right, `Damaged`, or an error; never something else.

Each engine is filled once and stopped. Then, again and again: a random bit of its files is flipped, the engine is
started on them, and every session is read and compared with what was written. Allowed are the right messages in their
places, `Damaged` items in the places of others, an engine that refuses to start, and a `RecollectError`. Not allowed
are other contents, another order, an error of another type, and a session that is shorter without a word. A message in
another place is allowed only where a `Damaged` item says that its own place is empty. Every third session has a message
that was retracted, and every fourth a time to live and metadata.

PostgreSQL has data checksums, the default from 18 on, and gets several flips at a time, because it starts slowly.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import asyncpg
from tools.attack.assault import Assault

from recollect import Message, RecollectError, Stored, open_store
from recollect.verify import engines
from recollect.verify.engines import Engine
from recollect.verify.host.errors import EngineError

TIMES = 10_000
"""Of each engine."""
SESSIONS = 24
MESSAGES = 12

RETRACTED = 5
"""In every third session: the sequence that has no message."""

Truth = dict[str, dict[int, Message]]
"""By session and sequence."""


class Victim(NamedTuple):
    """An engine that is not running, on the files of a full store."""

    url: Callable[[], str]
    """Starts it; raises an `EngineError` if it does not come up."""
    stop: Callable[[], None]
    folder: Path
    """What is put back after each flip."""
    files: list[Path]
    """Where bits are flipped."""
    at_once: int = 1
    """Flips between two starts, each in a page of its own."""


def attack(assault: Assault) -> None:
    for name, full in ENGINES.items():
        with tempfile.TemporaryDirectory(prefix="recollect-attack-") as scratch:
            truth = {f"session-{number}": _said(assault, number) for number in range(SESSIONS)}
            with full(Path(scratch), truth) as victim:
                _strike(assault, name, victim, truth)


def _said(assault: Assault, session: int) -> dict[int, Message]:
    words = [
        "hiking",
        "allergic",
        "peanuts",
        "Shanghai",
        "小李",
        "autumn",
        "mountains",
        "daughter",
        "piano",
        "blue",
    ]
    texts = (" ".join(assault.rng.choices(words, k=assault.rng.randint(1, 60))) for _ in range(MESSAGES))
    return {
        place: Message("user", text, metadata={"number": [session, place]})
        for place, text in enumerate(texts, 1)
        if session % 3 or place != RETRACTED
    }


def _strike(assault: Assault, name: str, victim: Victim, truth: Truth) -> None:
    kept = {path: path.read_bytes() for path in sorted(victim.folder.rglob("*")) if path.is_file()}
    times = 0
    while times < (assault.limit or TIMES) and assault.goes_on():
        flips = [_flip(assault, victim.files, kept) for _ in range(victim.at_once)]
        try:
            outcomes = asyncio.run(_read(victim.url(), truth))
        except EngineError:
            outcomes = ["loud"]
        victim.stop()
        _restore(victim.folder, kept)
        times += len(flips)
        assault.count(f"flips in {name}", len(flips))
        worst = max(outcomes, key=lambda outcome: RANK.get(outcome.partition(":")[0], 9))
        assault.count(f"{name} {worst.partition(':')[0]}")
        if worst not in RANK:
            assault.found(f"{name}: {worst}, after {', '.join(flips)}")


RANK = {"right": 0, "damaged": 1, "loud": 2}


def _flip(assault: Assault, files: list[Path], kept: dict[Path, bytes]) -> str:
    [path] = assault.rng.choices(files, weights=[len(kept[path]) for path in files])
    place, bit = assault.rng.randrange(len(kept[path])), assault.rng.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([kept[path][place] ^ 1 << bit]))
    return f"{path.name} byte {place} bit {bit}"


def _restore(folder: Path, kept: dict[Path, bytes]) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, content in kept.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


async def _read(url: str, truth: Truth) -> list[str]:
    outcomes = []
    try:
        async with open_store(url) as store:
            for session, said in truth.items():
                try:
                    outcomes.append(judged(await store.history(session), said))
                except RecollectError:
                    outcomes.append("loud")
                except Exception as error:
                    outcomes.append(f"raw error: reading {session} raised {error!r}")
    except RecollectError:
        outcomes.append("loud")
    except Exception as error:
        outcomes.append(f"raw error: opening raised {error!r}")
    return outcomes


def judged(found: list[Stored], said: dict[int, Message]) -> str:
    """How a session came back: `right`, `damaged`, or what is wrong."""
    messages = [(item.sequence, item.message) for item in found if isinstance(item.message, Message)]
    places = [sequence for sequence, _ in messages]
    if places != sorted(set(places)):
        return f"out of order: {places}"
    damaged = len(messages) < len(found)
    own = iter(said.items())
    for sequence, message in messages:
        place = next((place for place, mine in own if mine == message), None)
        if place is None or (place != sequence and not damaged):
            return f"wrong: {sequence} is {str(message)[:200]}"
    if damaged:
        return "damaged"
    return "right" if len(found) == len(said) else f"short: {len(found)} of {len(said)} without a word"


async def _fill(url: str, truth: Truth) -> None:
    gone = Message("user", "gone")
    async with open_store(url) as store, open_store(url, ttl=timedelta(days=1)) as mortal:
        for place in range(1, MESSAGES + 1, 2):
            for number, (session, said) in enumerate(truth.items()):
                turn = [said.get(place, gone), said.get(place + 1, gone)]
                await (store if number % 4 else mortal).append(session, turn, turn=f"turn-{place}")
        for number, (session, said) in enumerate(truth.items()):
            if RETRACTED not in said:
                await (store if number % 4 else mortal).retract(session, RETRACTED)
            if number % 4 == 0:
                await mortal.annotate(session, {"topic": session})


# ---- the engines


@contextmanager
def _sqlite(scratch: Path, truth: Truth) -> Iterator[Victim]:
    path = scratch / "memory.db"
    url = f"sqlite:///{path}"
    asyncio.run(_fill(url, truth))
    yield Victim(lambda: url, lambda: None, scratch, [path])


@contextmanager
def _redis(scratch: Path, truth: Truth) -> Iterator[Victim]:
    engine = engines.create("redis", "aof-always")
    try:
        asyncio.run(_fill(engine.start().url, truth))
        engine.stop()
        data = _data_of(engine)
        files = [path for path in data.rglob("*.aof") if path.stat().st_size]
        yield Victim(lambda: engine.start().url, engine.kill, data, files)
    finally:
        engine.close()


@contextmanager
def _postgres(scratch: Path, truth: Truth) -> Iterator[Victim]:
    engine = engines.create("postgres@18", "default")
    try:
        url = engine.start().url
        asyncio.run(_fill(url, truth))
        files = [_data_of(engine) / name for name in asyncio.run(_relations(url))]
        engine.stop()
        yield Victim(lambda: engine.start().url, engine.stop, files[0].parent, files, at_once=20)
    finally:
        engine.close()


def _data_of(engine: Engine) -> Path:
    assert engine.data is not None, "an engine of our own has its files here"
    return engine.data


async def _relations(url: str) -> list[str]:
    """The files of the store's tables and indexes."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("VACUUM FREEZE")
        await connection.execute("CHECKPOINT")
        rows = await connection.fetch(
            "SELECT pg_relation_filepath(oid) FROM pg_class WHERE relname LIKE 'recollect%' "
            "AND relkind IN ('r', 'i') AND pg_relation_size(oid) > 0"
        )
        return [row[0] for row in rows]
    finally:
        await connection.close()


ENGINES: dict[str, Callable[[Path, Truth], AbstractContextManager[Victim]]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "postgres": _postgres,
}
