"""A container of the user's own fixture, handed over to be broken; and who it still belongs to afterwards."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from recollect.verify import engines
from recollect.verify.providers import docker
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.wire import pgwire, resp
from tests.providers.conftest import POSTGRES_16, REDIS_7

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.usefixtures("daemon")]


@pytest.fixture
def redis_container() -> Iterator[Any]:
    docker.without_ryuk()  # its image would have to be pulled
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from testcontainers.redis import RedisContainer
    made = RedisContainer(REDIS_7, password="s3cret").with_command(
        "redis-server --appendonly yes --appendfsync always --requirepass s3cret"
    )
    with made:
        yield made


def test_a_testcontainer_is_killed_paused_and_restarted_on_its_volume(redis_container: Any) -> None:
    engine = engines.hand_over(redis_container)
    assert isinstance(engine, engines.Pausable)
    assert (engine.name, engine.policy, engine.provider) == ("redis", "custom", "testcontainer")
    assert engine.version.startswith("7.")
    _ask(engine, "SET", "row", "kept")
    engine.kill()
    assert not engine.alive()
    engine.restart()
    assert _ask(engine, "GET", "row") == "kept"
    engine.pause()
    engine.close()
    assert _ask(engine, "GET", "row") == "kept", "awake again, and still there: its owner removes it"
    engine.stop()
    with pytest.raises(engines.NotOurs, match="the container is yours"):
        engine.wipe()


def _ask(engine: engines.Engine, *words: str) -> resp.Reply:
    with resp.Connection(redis_address(engine.endpoint.url)) as connection:
        return connection.ask(*words)


def test_a_container_of_docker_py_with_its_own_user_and_database() -> None:
    env = {"POSTGRES_USER": "app", "POSTGRES_PASSWORD": "p@ss", "POSTGRES_DB": "chats"}
    with contextlib.closing(docker.client()) as client:
        made = client.containers.run(
            POSTGRES_16, detach=True, environment=env, ports={"5432/tcp": ("127.0.0.1", None)}
        )
        try:
            engine = engines.hand_over(made)
            with pgwire.Connection(postgres_address(engine.endpoint.url)) as connection:
                assert connection.value("SELECT current_database()") == "chats"
                connection.ask("CREATE TABLE rows AS SELECT 7 AS value")
            engine.kill()
            engine.restart()
            with pgwire.Connection(postgres_address(engine.endpoint.url)) as connection:
                assert connection.value("SELECT value FROM rows") == "7"
        finally:
            made.remove(force=True, v=True)


FIXTURES = f"""
import asyncio
import pytest
import redis
import redis.asyncio
from recollect.verify.providers import docker

@pytest.fixture(scope="session")
def container():
    client = docker.client()
    made = client.containers.run(
        "{REDIS_7}", "redis-server --appendonly yes --appendfsync always --protected-mode no",
        detach=True, ports={{"6379/tcp": ("127.0.0.1", None)}},
    )
    yield made
    made.remove(force=True, v=True)
    client.close()

def fixture_of(scope):
    @pytest.fixture(scope=scope)
    def fixture(container, recollect_engine):
        with recollect_engine(container) as engine:
            yield engine
    return fixture

of_function, of_class = fixture_of("function"), fixture_of("class")
of_module, of_session = fixture_of("module"), fixture_of("session")

def count(engine):
    with redis.Redis.from_url(engine.endpoint.url) as client:
        return client.incr("tests")

class TestScopes:
    @pytest.mark.parametrize("name", ["of_function", "of_class", "of_module", "of_session"])
    def test_each(self, name, request):
        engine = request.getfixturevalue(name)
        before = count(engine)
        engine.kill()
        assert not engine.alive()
        engine.restart()
        assert count(engine) == before + 1

@pytest.fixture
async def on_the_loop(container, recollect_engine):
    with recollect_engine(container) as engine:
        yield engine, asyncio.get_running_loop()

async def test_on_its_own_loop(on_the_loop):
    engine, loop = on_the_loop
    assert loop is asyncio.get_running_loop()
    await asyncio.to_thread(engine.kill)
    await asyncio.to_thread(engine.restart)
    async with redis.asyncio.Redis.from_url(engine.endpoint.url) as client:
        assert await client.incr("tests") == 9
"""


def test_fixtures_of_every_scope_hand_it_over(pytester: pytest.Pytester) -> None:
    """Two counted in each scope, plain, and the ninth on the test's own event loop: killed five times, nothing lost."""
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(FIXTURES)
    result = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:randomly")
    result.assert_outcomes(passed=5)


def test_what_is_no_container_is_refused() -> None:
    with pytest.raises(engines.EngineError, match="is no started container"):
        engines.hand_over(object())
