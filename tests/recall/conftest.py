"""Every kind of long-term memory: its rows and its index, each on a real engine that this test process started."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from recollect.recall import open_recall
from recollect.recall.opening import RecallOpening
from recollect.verify import engines
from recollect.verify.engines import Engine

KINDS = ("sqlite", "sqlite+chroma-folder", "sqlite+chroma-server", "postgres+pgvector")


@dataclass
class Place:
    kind: str
    rows: str
    index: str | None

    def open(self, **options: Any) -> RecallOpening:
        """The index is asked however few memories there are."""
        return open_recall(self.rows, index=self.index, **{"exact_rows_max": 0, **options})


@pytest.fixture(scope="session")
def engine_of() -> Iterator[Callable[[str], Engine]]:
    """Starts each engine once for all tests of this process."""
    started: dict[str, Engine] = {}

    def get(name: str) -> Engine:
        if name not in started:
            provider = "wheel" if name == "postgres" else None  # the wheel's has pgvector
            started[name] = engines.create(name, provider=provider)
            started[name].start()
        return started[name]

    yield get
    for engine in started.values():
        engine.close()


async def own_schema(engine: Engine) -> str:
    """The address of a new schema: nobody else's rows."""
    endpoint = engine.endpoint
    url = endpoint.socket_url or endpoint.url
    name = f"test_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await connection.execute(f"CREATE SCHEMA {name}")
    finally:
        await connection.close()
    return f"{url}{'&' if '?' in url else '?'}search_path={name}"


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, engine_of: Callable[[str], Engine], tmp_path: Path) -> Place:
    return await place_of(request.param, engine_of, tmp_path)


async def place_of(kind: str, engine_of: Callable[[str], Engine], folder: Path) -> Place:
    if kind.startswith("postgres"):
        url = await own_schema(engine_of("postgres"))
        return Place(kind, url, f"pgvector{url[url.index('://') :]}")
    index = None
    if kind == "sqlite+chroma-folder":
        index = f"chroma:///{folder}/index"
    elif kind == "sqlite+chroma-server":
        index = engine_of("chroma").endpoint.url
    return Place(kind, f"sqlite:///{folder}/memory.db", index)
