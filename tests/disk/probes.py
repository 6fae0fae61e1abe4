"""Numbered rows written straight into an engine, with no store in between.

What an engine itself keeps is the yardstick for the stores above it, so the known truths, the comparison with
the real kernel and the benches all write 0, 1, 2, … through a probe and look which numbers come back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from recollect.verify.disk.explanation import ACK
from recollect.verify.disk.exploring import HELD, Judgement
from recollect.verify.disk.image import Image
from recollect.verify.disk.recovery import home, recovery
from recollect.verify.engines import Endpoint
from recollect.verify.engines.chroma import ChromaEngine
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.protocols import Engine
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.engines.sqlite import SqliteEngine
from recollect.verify.host.errors import EngineError
from recollect.verify.wire import pgwire, resp

_TEXT = "x" * 100
_FIRST = list(range(10_000))


class Probe(Protocol):
    """A connection to a running engine."""

    def prepare(self) -> None:
        """Make what the rows go into; harmless when it is there."""

    def write(self, number: int) -> None:
        """Returns when the engine has acknowledged the row."""

    def read(self) -> list[int]:
        """The numbers that are there, in order of writing."""

    def close(self) -> None: ...


class RedisProbe:
    def __init__(self, engine: RedisEngine) -> None:
        self._connection = resp.Connection(engine.address, timeout_s=30.0)

    def prepare(self) -> None:
        """A list comes into being with its first element."""

    def write(self, number: int) -> None:
        self._connection.ask("RPUSH", "memory", f"{number}:{_TEXT}")

    def read(self) -> list[int]:
        reply = self._connection.ask("LRANGE", "memory", "0", "-1")
        return [int(str(row).partition(":")[0]) for row in reply] if isinstance(reply, list) else []

    def close(self) -> None:
        self._connection.close()


class PostgresProbe:
    def __init__(self, engine: PostgresEngine) -> None:
        self._connection = pgwire.Connection(engine.address)

    def prepare(self) -> None:
        self._connection.ask("CREATE TABLE IF NOT EXISTS memory (number int PRIMARY KEY, content text)")

    def write(self, number: int) -> None:
        self._connection.ask(f"INSERT INTO memory VALUES ({number}, '{_TEXT}')")

    def read(self) -> list[int]:
        if self._connection.value("SELECT to_regclass('memory')") is None:
            return []
        return [
            int(row[0] or -1) for row in self._connection.ask("SELECT number FROM memory ORDER BY number")
        ]

    def close(self) -> None:
        self._connection.close()


class SqliteProbe:
    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine

    def prepare(self) -> None:
        self._engine.ask("CREATE TABLE IF NOT EXISTS memory (number INTEGER PRIMARY KEY, content TEXT)")

    def write(self, number: int) -> None:
        self._engine.ask("INSERT INTO memory VALUES (?, ?)", number, _TEXT)

    def read(self) -> list[int]:
        if not self._engine.ask("SELECT 1 FROM sqlite_master WHERE name = 'memory'"):
            return []
        return [row[0] for row in self._engine.ask("SELECT number FROM memory ORDER BY number")]

    def close(self) -> None:
        """Each question is a connection of its own."""


class ChromaProbe:
    """Documents only; the vector index is not durable and says nothing here (FACTS: it is rebuildable)."""

    def __init__(self, engine: ChromaEngine) -> None:
        self._engine = engine

    def prepare(self) -> None:
        self._engine.ask("count", "memory")

    def write(self, number: int) -> None:
        self._engine.ask(
            "add", "memory", ids=[str(number)], documents=[_TEXT], embeddings=[[float(number), 1.0]]
        )

    def read(self) -> list[int]:
        return sorted(int(found) for found in self._engine.ask("get", "memory", include=[])["ids"])

    def close(self) -> None:
        """Each question is a connection of its own."""


_PROBES: Mapping[type, Callable[[Any], Probe]] = {
    RedisEngine: RedisProbe,
    PostgresEngine: PostgresProbe,
    SqliteEngine: SqliteProbe,
    ChromaEngine: ChromaProbe,
}


def probe(engine: Engine) -> Probe:
    """A probe for a running engine."""
    made = _PROBES.get(type(engine))
    if made is None:
        raise EngineError(f"no probe for {engine.name} of provider {engine.provider}; use a local engine")
    return made(engine)


@dataclass(frozen=True, slots=True)
class Loss:
    """Which acknowledged numbers did not come back."""

    acked: int
    lost: tuple[int, ...]
    is_tail: bool
    """Every lost number is later than every kept one."""

    @classmethod
    def between(cls, acked: int, read: Iterable[int]) -> Loss:
        kept = set(read)
        lost = tuple(number for number in range(acked) if number not in kept)
        return cls(acked, lost, not lost or not any(number > lost[0] for number in kept if number < acked))


# ---- crash states, judged by numbers ----


def numbers_in(endpoint: Endpoint) -> list[int]:
    """The numbers that an engine holds which has recovered on a crash state."""
    return _READERS[endpoint.engine](endpoint)


def _redis_numbers(endpoint: Endpoint) -> list[int]:
    with resp.Connection(resp.Address(socket=endpoint.socket)) as connection:
        reply = connection.ask("LRANGE", "memory", "0", "-1")
    return [int(str(row).partition(":")[0]) for row in reply] if isinstance(reply, list) else []


def _postgres_numbers(endpoint: Endpoint) -> list[int]:
    assert endpoint.socket is not None
    assert endpoint.port is not None
    address = pgwire.Address(port=endpoint.port, socket_folder=endpoint.socket.parent)
    with pgwire.Connection(address) as connection:
        return [int(row[0] or -1) for row in connection.ask("SELECT number FROM memory ORDER BY number")]


def _sqlite_numbers(endpoint: Endpoint) -> list[int]:
    assert endpoint.path is not None
    connection = sqlite3.connect(endpoint.path, isolation_level=None)
    try:
        # Recovery is the same; the index of the WAL is in memory instead of a file that is thrown away.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        [(said,)] = connection.execute("PRAGMA integrity_check(1)")
        if said != "ok":
            raise sqlite3.DatabaseError(said)
        return [number for (number,) in connection.execute("SELECT number FROM memory ORDER BY number")]
    finally:
        connection.close()


def _chroma_numbers(endpoint: Endpoint) -> list[int]:
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import Settings

    # One process keeps one system per path, and would go on with the files of the state before.
    SharedSystemClient.clear_system_cache()
    client = chromadb.PersistentClient(str(endpoint.path), settings=Settings(anonymized_telemetry=False))
    collection = client.get_collection("memory", embedding_function=None)
    return sorted(int(found) for found in collection.get(include=[])["ids"])


_READERS: Mapping[str, Callable[[Endpoint], list[int]]] = {
    "redis": _redis_numbers,
    "valkey": _redis_numbers,
    "postgres": _postgres_numbers,
    "sqlite": _sqlite_numbers,
    "chroma": _chroma_numbers,
}


def numbers_check(spec: str, policy: str) -> Callable[[], NumbersCheck]:
    """What `explore` makes its checks by. Slow imports are done here, once, before the workers are forked."""
    if spec.startswith("chroma"):
        import chromadb  # noqa: F401
    place = home()
    return lambda: NumbersCheck(spec, policy, place)


class NumbersCheck:
    """The rows of a probe on every crash state: all acknowledged ones are there, and none that was not written."""

    def __init__(self, spec: str, policy: str, place: Path) -> None:
        self._recovery = recovery(spec, policy, place)

    def check(self, image: Image, marks: Sequence[str]) -> Judgement:
        acked = sum(mark.startswith(ACK) for mark in marks)
        try:
            endpoint = self._recovery.recover(image)
        except EngineError as refusal:
            return Judgement("refuses-to-start", str(refusal).splitlines()[0])
        try:
            read = numbers_in(endpoint)
        except Exception as error:
            return Judgement("unreadable", f"{type(error).__name__}: {error}")
        return judged(acked, read)

    def close(self) -> None:
        self._recovery.close()


def judged(acked: int, read: Sequence[int]) -> Judgement:
    if len(read) >= acked and read == _FIRST[: len(read)]:
        return HELD  # as nearly always: thousands of states a second come by here
    loss = Loss.between(acked, read)
    if len(set(read)) != len(read):
        return Judgement("duplicate", f"{len(read) - len(set(read))} numbers came back twice")
    if loss.lost:
        name = "lost-tail" if loss.is_tail else "hole"
        return Judgement(name, f"{len(loss.lost)} of {acked} acknowledged, the first is {loss.lost[0]}")
    return HELD
