"""`recollect_engine` in the user's own fixtures: of every scope, plain and on the test's own event loop."""

import pytest

TESTS = """
import asyncio
import pytest
import redis
import redis.asyncio

made = []

def fixture_of(scope):
    @pytest.fixture(scope=scope)
    def fixture(recollect_engine):
        with recollect_engine("redis", "aof-always") as engine:
            made.append((scope, engine))
            yield engine
    return fixture

per_function, per_class = fixture_of("function"), fixture_of("class")
per_module, per_session = fixture_of("module"), fixture_of("session")

@pytest.fixture
async def memory(recollect_engine):
    with recollect_engine("redis", "aof-always") as engine:
        async with redis.asyncio.Redis.from_url(engine.endpoint.url) as client:
            yield engine, client, asyncio.get_running_loop()

def count(engine):
    with redis.Redis.from_url(engine.endpoint.url) as client:
        return client.incr("tests")

class TestTogether:
    def test_first(self, per_function, per_class, per_module, per_session):
        assert [count(e) for e in (per_function, per_class, per_module, per_session)] == [1, 1, 1, 1]
        for engine in (per_function, per_class, per_module, per_session):
            engine.kill()
            engine.restart()

    def test_second(self, per_function, per_class, per_module, per_session):
        assert [count(e) for e in (per_function, per_class, per_module, per_session)] == [1, 2, 2, 2]

class TestApart:
    def test_third(self, per_class, per_module, per_session):
        assert [count(e) for e in (per_class, per_module, per_session)] == [1, 3, 3]

async def test_on_its_own_loop(memory):
    engine, client, loop = memory
    assert loop is asyncio.get_running_loop()
    assert await client.incr("tests") == 1
    await asyncio.to_thread(engine.kill)
    await asyncio.to_thread(engine.restart)
    async with redis.asyncio.Redis.from_url(engine.endpoint.url) as again:
        assert await again.incr("tests") == 2

def test_what_is_over_is_gone():
    assert {scope for scope, engine in made if engine.alive()} == {"module", "session"}

def test_an_engine_that_is_not_there(recollect_engine):
    recollect_engine("redsi")
"""


def test_an_engine_lives_as_long_as_the_fixture_that_asked_for_it(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)
    result = project.runpytest_inprocess("-p", "no:xdist", "-p", "no:randomly")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["redsi: unknown engine 'redsi': did you mean 'redis'*"])
