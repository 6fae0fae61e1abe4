"""`recollect verify --provider URL` on engines that others use too: it comes to a verdict, and leaves no trace."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.message import Message
from recollect.verify import builtin, engines
from recollect.verify.running.engine_inspection import numbers_in
from recollect.verify.wire import pgwire, resp
from tests.providers import foreign

TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def redis() -> Iterator[Any]:
    engine: Any = engines.create("redis", "none")
    engine.start()
    with resp.Connection(replace(engine.address, database=15)) as connection:
        connection.ask("SET", "recollect:lease:customers", "not a lease")
        connection.ask("RPUSH", "app:customers:1", "precious #1.00000000 ")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    engine: Any = engines.create("postgres", "fsync-off")
    engine.start()
    engine.ask("CREATE ROLE humble LOGIN")
    engine.ask("CREATE ROLE maker LOGIN CREATEDB")
    engine.ask("GRANT CREATE ON DATABASE postgres TO humble, maker")
    engine.ask("CREATE DATABASE recollect_production OWNER maker")
    engine.ask("CREATE SCHEMA recollect_production AUTHORIZATION humble")
    for database in ("recollect_production", "postgres"):
        with pgwire.Connection(replace(engine.address, database=database)) as connection:
            connection.ask(
                "CREATE TABLE public.recollect_messages AS SELECT 'precious #1.00000000 ' AS message"
            )
            connection.ask("GRANT ALL ON public.recollect_messages TO PUBLIC")
    engine.ask("COMMENT ON DATABASE recollect_production IS 'do not drop'")
    engine.ask("COMMENT ON SCHEMA recollect_production IS 'do not drop'")
    yield engine
    engine.close()


@pytest.fixture(params=["redis", "postgres as a database", "postgres as a schema"])
def shared(request: pytest.FixtureRequest) -> tuple[str, str, Callable[[], foreign.Dump]]:
    """A target, an address, and everything that is there."""
    kind: str = request.param
    if kind == "redis":
        engine = request.getfixturevalue("redis")
        return "redis", f"redis://127.0.0.1:{engine.port}/15", lambda: foreign.redis(engine.address)
    engine = request.getfixturevalue("postgres")
    role = "maker" if kind.endswith("database") else "humble"
    url = engine.endpoint.socket_url.replace("postgres@", f"{role}@")
    return "postgres", url, lambda: foreign.postgres(engine.address)


def test_it_comes_to_a_verdict_and_leaves_no_trace(
    shared: tuple[str, str, Callable[[], foreign.Dump]], tmp_path: Path
) -> None:
    target, url, everything = shared
    before = everything()
    words = ["verify", target, "--provider", url, "--fault", "kill-app", "--fault", "newer-writer"]
    words += ["--budget", "10m"]  # no cell is left out on a busy machine
    done = subprocess.run(
        [sys.executable, "-m", "recollect", *words, "--out", str(tmp_path), "--json", str(tmp_path / "json")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    cells = json.loads((tmp_path / "json").read_text())["cells"]
    assert {(cell["fault"], cell["status"]) for cell in cells} == {
        ("kill-app", "held"),
        ("newer-writer", "held"),
    }, done.stderr
    assert min(cell["acked"] for cell in cells) > 0
    assert everything() == before


def test_the_engine_itself_is_asked_for_what_the_run_wrote_and_for_nothing_else(
    shared: tuple[str, str, Callable[[], foreign.Dump]],
) -> None:
    target, url, _ = shared
    attached = engines.attach(url)
    endpoint = attached.start()

    async def write() -> None:
        store = await getattr(builtin, target)(endpoint)
        await store.append(f"chat {endpoint.namespace}", [Message("user", "#7.00000000 hello")])
        await store.close()

    try:
        asyncio.run(write())
        assert numbers_in(target, endpoint) == {7}
    finally:
        attached.stop()
