"""Numbered rows written straight into an engine, with no store in between.

What an engine itself keeps is the yardstick for the stores above it, so the known truths, the comparison with
the real kernel and the benches all write 0, 1, 2, … through a probe and look which numbers come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from recollect.verify.engines.chroma import ChromaEngine
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.engines.protocols import Engine
from recollect.verify.engines.redis import RedisEngine
from recollect.verify.engines.sqlite import SqliteEngine
from recollect.verify.host.errors import EngineError
from recollect.verify.wire import pgwire, resp

_TEXT = "x" * 100


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
