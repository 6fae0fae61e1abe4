"""Engines and namespaces for tests of one's own, plain and asynchronous."""

import pytest

from recollect.verify import engines

TESTS = """
import sqlite3
import pytest
import redis
import redis.asyncio

def test_engine_can_be_broken(redis_engine, endpoint, namespace):
    assert endpoint == redis_engine.endpoint
    redis.Redis.from_url(endpoint.url).set(namespace, "here")
    redis_engine.kill()
    redis_engine.restart()
    assert redis.Redis.from_url(redis_engine.endpoint.url).get(namespace) == b"here"

@pytest.mark.recollect(engine="redis", policy="none")
async def test_policy_of_the_marker(endpoint):
    async with redis.asyncio.Redis.from_url(endpoint.url) as client:
        assert (await client.config_get("appendonly"))["appendonly"] == "no"
        assert await client.dbsize() == 0

def test_embedded(sqlite_engine):
    assert sqlite_engine.endpoint.path.parent.is_dir()

def test_server(postgres_engine):
    assert postgres_engine.endpoint.url.startswith("postgresql://")

def test_vectors(chroma_engine):
    assert chroma_engine.endpoint.url.startswith("http://")

def test_namespaces_differ(namespace, request):
    assert namespace.startswith("recollect-")

def test_without_a_choice(endpoint):
    pass
"""


def test_every_engine(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)
    result = project.runpytest_inprocess("-p", "no:xdist")
    result.assert_outcomes(passed=6, errors=1)
    result.stdout.fnmatch_lines(["endpoint of which engine?*--recollect-engine"])
    result.stdout.no_fnmatch_line("*During handling of*")


def test_an_engine_at_an_address_is_left_as_it_was(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import redis
        from recollect.pytest_plugin import MemoryStoreSuite

        class TestMemory(MemoryStoreSuite):
            engine = "redis"
            fault = ("kill-engine", "concurrent-writers")

            @staticmethod
            def factory(endpoint):
                from shop_memory import ListMemory
                return ListMemory(endpoint.url)

        def test_fixture(redis_engine, namespace):
            assert not hasattr(redis_engine, "kill")
            redis.Redis.from_url(redis_engine.endpoint.url).set(f"chat:{namespace}", "x")
        """
    )
    engine = engines.create("redis")
    try:
        import redis

        url = engine.start().url
        client = redis.Redis.from_url(url.removesuffix("/0") + "/15")
        client.set("theirs", "kept")
        result = project.runpytest_inprocess(
            "-rs", "-p", "no:xdist", f"--recollect-url={url.removesuffix('/0')}/15"
        )
        result.assert_outcomes(passed=2, skipped=1)
        result.stdout.fnmatch_lines(["*the engine is yours*never killed*"])
        assert client.keys() == [b"theirs"]
        client.close()
    finally:
        engine.close()
