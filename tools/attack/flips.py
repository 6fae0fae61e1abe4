"""One flipped bit in an engine's data files: what comes back is right, `Damaged`, or an error; never something else.

Each engine is filled once and stopped. Then, again and again: random bits of its files are flipped, the engine is
started on them, and every session is read and compared with what was written. Allowed are the right messages in their
places, `Damaged` items in the places of others, an engine that refuses to start, and a `RecollectError`. Not allowed
are other contents, another order, an error of another type, and a session that is shorter without a word. A message in
another place is allowed only where a `Damaged` item says that its own place is empty. Every third session has a message
that was retracted, every fourth a time to live and metadata, and every fifth a message too long for one page.

Servers start slowly, so they get several flips at a time, and each session is judged by itself. Where nothing could be
read at all, because the engine did not start or the store did not open, the flips are tried again in halves: so a loud
one hides no other.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import asyncpg
from tools.attack.assault import Assault

from recollect import Description, Message, RecollectError, Stored, open_store
from recollect.verify import engines
from recollect.verify.engines import Engine
from recollect.verify.host.errors import EngineError

TIMES = 10_000
"""Of each engine."""
MESSAGES = 12
FEW = 100
"""Above the number of a session's messages, so that all of them are asked for."""
SESSIONS_IN_A_FILE, SESSIONS_IN_A_SERVER = 24, 240

RETRACTED, LONG = 5, 8
"""Sequences: in every third session this one has no message, and in every fifth that one has a long one."""

READ_S = 3.0
"""The time limit of each call: a flipped bit can make an engine search without end."""

Truth = dict[str, dict[int, Message]]
"""By session and sequence."""


class Victim(NamedTuple):
    """An engine that is not running, on the files of a full store."""

    url: Callable[[], str]
    """Starts it; raises an `EngineError` if it does not come up."""
    stop: Callable[[], None]
    folder: Path
    """What is put back after each start."""
    files: list[Path]
    """Where bits are flipped."""


class Kind(NamedTuple):
    """How an engine is attacked."""

    full: Callable[[Path, Truth], AbstractContextManager[Victim]]
    sessions: int
    at_once: int
    """Flips between two starts."""
    may_hide: bool = False
    """An engine without checksums of its own: an index that has rotted does not find what is there, and nothing above
    it can tell. Messages that are hidden are counted, and are no finding."""


class Flip(NamedTuple):
    path: Path
    place: int
    bit: int

    def __str__(self) -> str:
        return f"{self.path.name} byte {self.place} bit {self.bit}"


def attack(assault: Assault, only: str | None = None) -> None:
    for name, kind in ENGINES.items():
        if only not in (None, name):
            continue
        with tempfile.TemporaryDirectory(prefix="recollect-attack-") as scratch:
            truth = {f"session-{number}": _said(assault, number) for number in range(kind.sessions)}
            with kind.full(Path(scratch), truth) as victim:
                _strike(assault, name, kind, victim, truth)


_WORDS = (
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
)


def _said(assault: Assault, session: int) -> dict[int, Message]:
    def text(place: int) -> str:
        if session % 5 == 0 and place == LONG:
            return assault.rng.randbytes(8_000).hex()
        return " ".join(assault.rng.choices(_WORDS, k=assault.rng.randint(1, 60)))

    return {
        place: Message("user", text(place), metadata={"number": [session, place]})
        for place in range(1, MESSAGES + 1)
        if session % 3 or place != RETRACTED
    }


def _strike(assault: Assault, name: str, kind: Kind, victim: Victim, truth: Truth) -> None:
    kept = {path: path.read_bytes() for path in sorted(victim.folder.rglob("*")) if path.is_file()}
    times = 0
    while times < (assault.limit or TIMES) and assault.goes_on():
        flips = [_chosen(assault, victim.files, kept) for _ in range(kind.at_once)]
        waiting = [flips]
        while waiting:
            some = waiting.pop()
            outcomes = _tried(victim, kept, truth, some)
            if not outcomes and len(some) > 1:
                waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
                continue
            _count(assault, name, kind, some, outcomes)
        times += len(flips)


def _tried(victim: Victim, kept: dict[Path, bytes], truth: Truth, flips: list[Flip]) -> list[str]:
    """What became of each session; nothing if none could be read."""
    for flip in flips:
        with flip.path.open("r+b") as file:
            file.seek(flip.place)
            [byte] = file.read(1)
            file.seek(flip.place)
            file.write(bytes([byte ^ 1 << flip.bit]))
    try:
        return asyncio.run(_read(victim.url(), truth))
    except EngineError:
        return []
    finally:
        victim.stop()
        _restore(victim.folder, kept)


def _count(assault: Assault, name: str, kind: Kind, flips: list[Flip], outcomes: list[str]) -> None:
    assault.count(f"flips in {name}", len(flips))
    assault.count(f"starts of {name}")
    if not outcomes:
        assault.count(f"flips in {name} {NOTHING}")
    for outcome in outcomes:
        word = outcome.partition(":")[0]
        assault.count(f"sessions of {name} {word}")
        if word not in ALLOWED and not (word == "short" and kind.may_hide):
            assault.found(f"{name}: {outcome}, after {', '.join(map(str, flips))}")


NOTHING = "after which nothing could be read"
ALLOWED = ("right", "damaged", "loud")


def _chosen(assault: Assault, files: list[Path], kept: dict[Path, bytes]) -> Flip:
    [path] = assault.rng.choices(files, weights=[len(kept[path]) for path in files])
    return Flip(path, assault.rng.randrange(len(kept[path])), assault.rng.randrange(8))


def _restore(folder: Path, kept: dict[Path, bytes]) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, content in kept.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


async def _read(url: str, truth: Truth) -> list[str]:
    """How each session came back; nothing if the store says at once that it cannot be read."""
    outcomes: list[str] = []
    try:
        async with open_store(url, timeout_s=READ_S) as store:
            for number, (session, said) in enumerate(truth.items()):
                try:  # a few messages may be read another way than all of them
                    found = await store.history(session, last=FEW if number % 2 else None)
                    outcomes.append(judged(found, said))
                    if number % 4 == 0 and outcomes[-1] in ALLOWED:
                        outcomes[-1] = described(outcomes[-1], await store.describe(session))
                except RecollectError:
                    outcomes.append("loud")
                except Exception as error:
                    outcomes.append(f"raw error: reading {session} raised {error!r}")
    except RecollectError:
        return outcomes
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
        if damaged and message == _GONE:
            continue  # a retraction that was lost, and told
        place = next((place for place, mine in own if mine == message), None)
        if place is None or (place != sequence and not damaged):
            return f"wrong: {sequence} is {str(message)[:200]}"
    if damaged:
        return "damaged"
    return "right" if len(found) == len(said) else f"short: {len(found)} of {len(said)} without a word"


def described(outcome: str, found: Description) -> str:
    """The outcome of an annotated session, once its metadata is known as well."""
    if found.metadata == {"topic": found.session}:
        return outcome
    return f"wrong: metadata {found.metadata}" if found.metadata else "short: no metadata, without a word"


async def _fill(url: str, truth: Truth) -> None:
    """Some sessions at a time in turns, so that neighbours in a page are of different sessions, yet no session is in
    every page."""
    sessions = list(truth.items())
    async with open_store(url) as store, open_store(url, ttl=timedelta(days=1)) as mortal:
        for first in range(0, len(sessions), SESSIONS_IN_A_FILE):
            some = [
                (mortal if number % 4 == 0 else store, *sessions[number])
                for number in range(first, min(first + SESSIONS_IN_A_FILE, len(sessions)))
            ]
            for place in range(1, MESSAGES + 1, 2):
                for of, session, said in some:
                    turn = [said.get(place, _GONE), said.get(place + 1, _GONE)]
                    await of.append(session, turn, turn=f"turn-{place}")
            for of, session, said in some:
                if RETRACTED not in said:
                    await of.retract(session, RETRACTED)
                if of is mortal:
                    await of.annotate(session, {"topic": session})


_GONE = Message("user", "gone")


# ---- the engines


@contextmanager
def _sqlite(scratch: Path, truth: Truth) -> Iterator[Victim]:
    path = scratch / "memory.db"
    url = f"sqlite:///{path}"
    asyncio.run(_fill(url, truth))
    yield Victim(lambda: url, lambda: None, scratch, [path])


@contextmanager
def _redis_with(policy: str, suffix: str, scratch: Path, truth: Truth) -> Iterator[Victim]:
    engine = engines.create("redis", policy)
    try:
        asyncio.run(_fill(engine.start().url, truth))
        engine.stop()  # with a snapshot, where the policy has one
        data = _data_of(engine)
        files = [path for path in data.rglob(f"*{suffix}") if path.stat().st_size]
        yield Victim(lambda: engine.start().url, engine.kill, data, files)
    finally:
        engine.close()


@contextmanager
def _postgres(spec: str, scratch: Path, truth: Truth) -> Iterator[Victim]:
    engine = engines.create(spec, "default")
    try:
        url = engine.start().url
        asyncio.run(_fill(url, truth))
        files = [_data_of(engine) / name for name in asyncio.run(_relations(url))]
        engine.stop()
        yield Victim(lambda: engine.start().url, engine.stop, files[0].parent, files)
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
            "WITH own AS (SELECT oid, reltoastrelid FROM pg_class WHERE relname LIKE 'recollect%' "
            "AND relkind IN ('r', 'i')) SELECT pg_relation_filepath(oid) FROM pg_class WHERE "
            "pg_relation_size(oid) > 0 AND (oid IN (SELECT oid FROM own) OR oid IN (SELECT reltoastrelid FROM own) "
            "OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT reltoastrelid FROM own)))"
        )
        return [row[0] for row in rows]
    finally:
        await connection.close()


ENGINES: dict[str, Kind] = {
    "sqlite": Kind(_sqlite, SESSIONS_IN_A_FILE, 1),
    "redis": Kind(partial(_redis_with, "aof-always", ".aof"), SESSIONS_IN_A_FILE, 4),
    "redis-snapshot": Kind(partial(_redis_with, "rdb", ".rdb"), SESSIONS_IN_A_FILE, 1),
    "postgres": Kind(partial(_postgres, "postgres@18"), SESSIONS_IN_A_SERVER, 40),
    "postgres-without-checksums": Kind(
        partial(_postgres, "postgres@16"), SESSIONS_IN_A_SERVER, 50, may_hide=True
    ),
}
"""Data checksums are PostgreSQL's default from 18 on."""
