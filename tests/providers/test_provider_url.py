"""An engine of somebody else's: our namespace comes and goes, and nothing else is touched."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from recollect.verify import engines
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.providers.url import engine_of, without_credentials
from recollect.verify.wire import resp
from recollect.verify.wire.tls import TlsOptions

MANY = 1_300


@pytest.fixture(scope="module")
def redis() -> Iterator[Any]:
    engine = engines.create("redis", "none")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    engine = engines.create("postgres", "fsync-off")
    engine.start()
    yield engine
    engine.close()


@pytest.fixture
def database(redis: Any) -> Iterator[resp.Connection]:
    """Database 15, with a key of somebody else's."""
    with resp.Connection(replace(redis.address, database=15)) as connection:
        connection.ask("SET", "somebody-elses", "precious")
        yield connection
        connection.ask("FLUSHDB")


def url_of(redis: Any, database: int) -> str:
    return f"redis://127.0.0.1:{redis.port}/{database}"


def test_redis_keys_of_the_namespace_are_removed_and_no_others(redis: Any, database: resp.Connection) -> None:
    attached = engines.attach(url_of(redis, 15))
    endpoint = attached.start()
    assert isinstance(attached, engines.Attached)
    assert not isinstance(attached, engines.Engine), "its type has no kill"
    assert (endpoint.provider, endpoint.policy, endpoint.version) == ("url", "custom", redis.version)
    for number in range(MANY):
        database.ask("SET", f"chat:{endpoint.namespace}:{number}", "ours")
    attached.stop()
    assert database.ask("KEYS", "*") == ["somebody-elses"]
    assert redis.alive()
    calls = str(redis.ask("INFO", "commandstats"))
    assert "cmdstat_flushall" not in calls


def test_each_run_has_a_namespace_of_its_own(redis: Any, database: resp.Connection) -> None:
    one, two = engines.attach(url_of(redis, 15)), engines.attach(url_of(redis, 15))
    first, second = one.start().namespace, two.start().namespace
    assert first != second
    database.ask("SET", f"chat:{second}", "the second run's")
    one.stop()
    assert database.ask("EXISTS", f"chat:{second}") == 1
    two.stop()


def test_database_0_with_other_peoples_keys_is_refused_unless_told_so(redis: Any) -> None:
    redis.ask("SET", "somebody-elses", "precious")
    try:
        with pytest.raises(engines.NotOurs) as caught:
            engines.attach(url_of(redis, 0)).start()
        assert "holds keys of others" in str(caught.value)
        assert f"redis://127.0.0.1:{redis.port}/15" in str(caught.value)
        shared = engines.attach(url_of(redis, 0), allow_shared=True)
        shared.start()
        shared.stop()
        assert redis.ask("KEYS", "*") == ["somebody-elses"]
    finally:
        redis.ask("DEL", "somebody-elses")


def test_runs_beside_each_other_share_an_empty_database_0(redis: Any) -> None:
    one, two = engines.attach(url_of(redis, 0)), engines.attach(url_of(redis, 0))
    try:
        first = one.start().namespace
        redis.ask("SET", f"chat:{first}:1", "the first run's")
        two.start()
        redis.ask("SET", "recollect:lease:not-one", "looks like a lease")
        with pytest.raises(engines.NotOurs):
            engines.attach(url_of(redis, 0)).start()
    finally:
        redis.ask("DEL", "recollect:lease:not-one")
        one.stop()
        two.stop()
    assert redis.ask("KEYS", "*") == []


def test_postgres_gets_a_database_of_its_own(postgres: Any) -> None:
    attached = engines.attach(postgres.endpoint.url)
    endpoint = attached.start()
    assert endpoint.namespace is not None
    assert endpoint.url.endswith(f"/{endpoint.namespace}")
    assert (endpoint.namespace,) in postgres.ask("SELECT datname FROM pg_database")
    attached.renew()
    attached.stop()
    assert (endpoint.namespace,) not in postgres.ask("SELECT datname FROM pg_database")


def test_postgres_gets_a_schema_where_it_may_not_create_databases(postgres: Any) -> None:
    postgres.ask("CREATE ROLE humble LOGIN")
    postgres.ask("GRANT CREATE ON DATABASE postgres TO humble")
    attached = engines.attach(postgres.endpoint.socket_url.replace("postgres@", "humble@"))
    endpoint = attached.start()
    assert f"search_path%3D{endpoint.namespace}" in endpoint.url
    assert (endpoint.namespace,) in postgres.ask("SELECT nspname FROM pg_namespace")
    attached.stop()
    assert (endpoint.namespace,) not in postgres.ask("SELECT nspname FROM pg_namespace")


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/15", "postgresql://127.0.0.1:1/x", "unix:///nowhere.sock?db=3"]
)
def test_an_engine_that_is_not_there(url: str) -> None:
    with pytest.raises(
        engines.StartFailed, match=r"cannot be used: .*; is it up, and are the credentials right"
    ):
        engines.attach(url).start()


def test_addresses() -> None:
    assert engine_of("postgresql+asyncpg://x") == "postgres"
    address = redis_address("rediss://me:p%40ss@h:7000/3")
    assert (address.host, address.port, address.username, address.password) == ("h", 7000, "me", "p@ss")
    assert (address.database, address.tls) == (3, TlsOptions())
    assert redis_address("redis://h:7000/3?ssl_ca_certs=x").tls is None
    options = "ssl_ca_certs=a.pem&ssl_certfile=c.pem&ssl_keyfile=k.pem&ssl_password=word"
    chosen = redis_address(f"rediss://h?{options}&ssl_check_hostname=no").tls
    assert chosen == TlsOptions("a.pem", None, "c.pem", "k.pem", "word", check_hostname=False)
    assert "word" not in repr(chosen)
    unchecked = TlsOptions(cert_reqs="none").context()
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)
    over_socket = postgres_address("postgresql://app@/chats?host=/run/pg&port=5433")
    assert (str(over_socket.socket_folder), over_socket.port, over_socket.user) == ("/run/pg", 5433, "app")
    assert without_credentials("redis://u:p@h:1/0?password=x") == "redis://h:1/0"
    with pytest.raises(engines.EngineError, match="'zero' is not a number"):
        redis_address("redis://h/zero")
