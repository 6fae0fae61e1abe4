"""A thread that speaks on a borrowed connection itself (`near_wire`): whose loop it is of, and what it may carry.

What a saver does with it is in tests/adapters.
"""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import uvloop

from recollect.near import NotHere
from recollect.stores.postgres.near import NearPostgres
from recollect.stores.postgres.pool import PostgresPool
from recollect.verify import engines
from recollect.verify.engines import Engine
from tests.certificates import certified

__all__ = ["certified"]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    running = engines.create("postgres", "default")
    running.start()
    yield running
    running.close()


@contextmanager
def lent(url: str, new_loop: Callable[[], Any] = asyncio.new_event_loop) -> Iterator[NearPostgres]:
    """A pool on a loop of its own, in its own thread."""
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def opened() -> tuple[PostgresPool, NearPostgres]:
        pool = PostgresPool(url, 3)
        return pool, NearPostgres(pool, 10)

    pool, near = asyncio.run_coroutine_threadsafe(opened(), loop).result()
    try:
        yield near
    finally:
        for closing in (near.close, pool.close):
            asyncio.run_coroutine_threadsafe(closing(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_values_come_back_as_they_went(engine: Engine, new_loop: Callable[[], Any]) -> None:
    given = [b"\0\xff", None, 7, [b"a", b"", b"\0"], [], [1, -2]]
    with lent(engine.endpoint.url, new_loop) as near:
        for _ in range(2):
            found = near.run(
                "SELECT $1::bytea, $2::bytea, $3::int, $4::bytea[], $5::bytea[], array_length($6::int[], 1)",
                given,
            )
            assert found == ([(*given[:5], 2)], "SELECT 1")


def test_what_is_not_spoken_here_is_left_to_the_loop(engine: Engine) -> None:
    with lent(engine.endpoint.url) as near:
        for statement in ("SELECT 1.5", "SELECT 1 / 0", "not SQL", "SELECT now()"):
            with pytest.raises(NotHere):
                near.run(statement, [])
            assert near.run("SELECT 5", []).rows == [(5,)]


def test_a_notice_and_a_changed_setting_come_in_passing(engine: Engine) -> None:
    with lent(engine.endpoint.url) as near:
        near.run("SET application_name = 'other'", [])
        near.run("DO $$ BEGIN RAISE NOTICE 'heard'; END $$", [])
        assert near.run("SELECT 'x'::bytea", []).rows == [(b"x",)]


def test_a_connection_whose_commit_was_abandoned_is_nobodys_until_it_is_dropped(engine: Engine) -> None:
    """Dropping it closes its socket, and cancels what is under way on it. Here the loop has no time for that yet."""
    busy = threading.Event()
    with lent(engine.endpoint.url) as near:
        near.run("SELECT 5", [])
        wire = near._wire
        assert wire is not None
        assert wire.is_usable
        near._loop.call_soon_threadsafe(busy.wait)
        try:
            with pytest.raises(ConnectionError, match="stop waiting for its standbys"):
                near.run("DO $$ BEGIN RAISE WARNING 'as a commit that is abandoned'; END $$", [])
            assert not wire.is_usable
        finally:
            busy.set()
        assert near.run("SELECT 6", []).rows == [(6,)]
        assert near._wire is not wire


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_pool_that_closes_does_not_wait_for_what_was_lent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, interrupted: bool
) -> None:
    monkeypatch.setattr("recollect.stores.postgres.pool.CLOSE_TIMEOUT_S", 60.0)
    with lent(engine.endpoint.url) as near:
        assert near.run("SELECT 5", []).rows == [(5,)]
        assert near._wire is not None
        near._wire.is_asking = interrupted
        started = time.monotonic()
    assert time.monotonic() - started < 30


def test_an_encrypted_connection_is_not_lent(certified: tuple[Path, Path]) -> None:
    with_tls = engines.create("postgres", "default")
    try:
        url = with_tls.start().url
        data = Path(_asked(url, "SHOW data_directory"))
        for path, name in zip(certified, ("server.key", "server.crt"), strict=True):  # where the server looks
            shutil.copyfile(path, data / name)
            shutil.chown(data / name, data.owner(), data.group())
            (data / name).chmod(0o600)
        _asked(url, "ALTER SYSTEM SET ssl = on")
        _asked(url, "SELECT pg_reload_conf()")
        with lent(f"{url}{'&' if '?' in url else '?'}sslmode=require") as near:
            for _ in range(2):
                with pytest.raises(NotHere):
                    near.run("SELECT 1", [])
            assert not near._possible
            assert near._pool._taken == 0
    finally:
        with_tls.close()


def _asked(url: str, statement: str) -> Any:
    async def asked() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(asked())
