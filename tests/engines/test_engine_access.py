"""Who gets in: the run itself, by the address it is given; other users of this machine as little as can be."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.secret import secrets_of
from recollect.verify.engines import Endpoint, EngineOptions
from recollect.verify.host import folder
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.target.login import VARIABLE, environment_for, logged_in
from recollect.verify.wire import pgwire, resp
from tests.engines import rows
from tests.engines.conftest import Create, need

STRANGER = 12345
"""A user id that nobody here has."""

POSTGRES = ("postgres@15", "postgres@16", "postgres@18")
REDIS = ("redis@6.2", "redis@7", "valkey")


def gets_in(endpoint: Endpoint) -> bool:
    """With the address that a target is given."""
    with pgwire.Connection(postgres_address(endpoint.url)) as connection:
        return connection.value("SELECT current_user") == endpoint.user


def refused(endpoint: Endpoint, **login: Any) -> str:
    address = pgwire.Address(port=endpoint.port or 0, host=str(endpoint.host), **login)
    with pytest.raises(pgwire.PgError) as caught:
        pgwire.Connection(address)
    return str(caught.value)


@pytest.mark.parametrize("spec", POSTGRES)
def test_postgres_wants_its_password_on_the_port(create: Create, spec: str) -> None:
    engine = create(spec)
    endpoint = engine.start()
    assert endpoint.password in endpoint.url
    assert gets_in(endpoint)
    assert "asks for a password" in refused(endpoint)
    assert "password authentication failed" in refused(endpoint, password="guess")
    assert engine.ask("SELECT DISTINCT auth_method FROM pg_hba_file_rules WHERE type = 'host'") == [
        ("scram-sha-256",)
    ]
    mode = endpoint.socket.stat().st_mode
    assert not mode & (stat.S_IRWXG | stat.S_IRWXO), "its socket trusts, and is nobody else's"


def test_each_engine_has_a_password_of_its_own(create: Create) -> None:
    engines = [create(spec) for spec in ("postgres", "postgres", "redis", "redis")]
    passwords = [engine.start().password for engine in engines]
    assert len(set(passwords)) == 4
    assert all(len(password) >= 32 for password in passwords)


def test_the_password_is_there_after_every_kind_of_end(create: Create, tmp_path: Path) -> None:
    engine = create("postgres", "async-commit")
    assert gets_in(engine.start())
    engine.kill()
    assert gets_in(engine.start())
    engine.ask("ALTER ROLE postgres PASSWORD 'something else'")
    assert gets_in(engine.restart())
    engine.stop()
    engine.wipe()
    assert gets_in(engine.start())
    replica = engine.replica()
    assert gets_in(replica.endpoint)
    engine.kill()
    assert gets_in(replica.promote())


def test_an_engine_on_the_data_of_another_lets_in_who_has_its_own_password(create: Create) -> None:
    first = create("postgres")
    before = first.start()
    rows.write(first, "moved")
    first.kill()
    second = create("postgres", options=EngineOptions(data=first.data))
    endpoint = second.start()
    assert gets_in(endpoint)
    assert "password authentication failed" in refused(endpoint, password=before.password)
    assert rows.read(second) == ["moved"]


def test_an_upgrade_keeps_the_password(create: Create) -> None:
    need("postgres@16", "postgres@18")
    engine = create("postgres@16")
    engine.start()
    assert gets_in(engine.upgrade("18"))


@pytest.mark.parametrize("spec", REDIS)
def test_redis_stores_for_strangers_and_does_not_obey_them(create: Create, spec: str) -> None:
    engine = create(spec)
    endpoint = engine.start()
    with resp.Connection(resp.Address(host=str(endpoint.host), port=endpoint.port or 0)) as stranger:
        assert stranger.ask("SET", "row", "kept") == "OK"
        assert stranger.ask("EVAL", "return redis.call('GET', 'row')", "0") == "kept"
        assert "redis_version" in str(stranger.ask("INFO", "server"))
        assert stranger.ask("CONFIG", "GET", "appendonly") == ["appendonly", "yes"]
        for words in (
            ("CONFIG", "SET", "dir", "/tmp"),
            ("CONFIG", "REWRITE"),
            ("MODULE", "LOAD", "/tmp/evil.so"),
            ("REPLICAOF", "127.0.0.1", "1"),
            ("DEBUG", "SLEEP", "0"),
            ("ACL", "SETUSER", "me", "on", "nopass", "+@all"),
            ("MIGRATE", "127.0.0.1", "1", "row", "0", "10"),
            ("SHUTDOWN", "NOSAVE"),
        ):
            with pytest.raises(resp.RespError, match=r"NOPERM|command not allowed"):
                stranger.ask(*words)
    with resp.Connection(redis_address(endpoint.url)) as ours:
        assert ours.ask("CONFIG", "SET", "maxmemory", "64mb") == "OK"
        assert ours.ask("ACL", "WHOAMI") == endpoint.user
    assert engine.alive()


def test_a_file_of_the_user_s_own_says_itself_who_may_do_what(create: Create, tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("user default on nopass ~* &* +@all\nmaxmemory 64mb\n")
    endpoint = create("redis", config=own).start()
    assert (endpoint.user, endpoint.password) == (None, None)
    with resp.Connection(redis_address(endpoint.url)) as connection:
        assert connection.ask("CONFIG", "SET", "maxmemory", "32mb") == "OK"
    own.write_text("maxmemory 64mb\n")
    endpoint = create("redis", config=own).start()
    with resp.Connection(resp.Address(host=str(endpoint.host), port=endpoint.port or 0)) as stranger:
        with pytest.raises(resp.RespError, match="NOPERM"):
            stranger.ask("CONFIG", "SET", "maxmemory", "32mb")


def test_an_endpoint_does_not_print_its_password(create: Create) -> None:
    for spec in ("postgres", "redis"):
        endpoint = create(spec).start()
        for text in (repr(endpoint), str(endpoint), f"{endpoint}", endpoint.shown):
            assert not any(secret in text for secret in (endpoint.password, *secrets_of(endpoint.url)))
        bare = replace(endpoint, url="postgresql://127.0.0.1/x", socket_url=None)
        assert endpoint.password not in repr(bare)


# ---- another user of this machine

AS_A_STRANGER = """
import os, socket, sys
run, path, uid = sys.argv[1:]
os.setgroups([])
os.setgid(int(uid))
os.setuid(int(uid))
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
def connect():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
        return "in"
print(tried(lambda: os.listdir(run)), tried(lambda: os.listdir(os.path.dirname(path))), tried(connect))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("spec", ["postgres", "redis", "sqlite", "chroma"])
def test_another_user_reaches_no_socket_and_no_file(create: Create, spec: str) -> None:
    engine = create(spec, "embedded" if spec == "chroma" else None)
    endpoint = engine.start()
    path = str(endpoint.socket or engine.socket)
    words = [sys.executable, "-I", "-S", "-c", AS_A_STRANGER, str(folder.current()), path, str(STRANGER)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["PermissionError"] * 3, done.stderr


# ---- targets that know host and port alone


def test_the_drivers_of_postgres_find_the_password_of_the_addresses_they_are_given(create: Create) -> None:
    endpoint = create("postgres").start()
    proxied = replace(endpoint, url=endpoint.url.replace(f":{endpoint.port}/", ":7777/"), port=7777)
    environment = environment_for(replace(proxied, replicas=(endpoint.url,)))
    file = Path(environment[VARIABLE])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.is_relative_to(folder.current())
    assert file.read_text().splitlines() == [
        f"127.0.0.1:7777:*:postgres:{endpoint.password}",
        f"127.0.0.1:{endpoint.port}:*:postgres:{endpoint.password}",
    ]
    assert environment_for(create("redis").start()) == {}


def test_the_environment_is_as_it_was_afterwards(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = create("postgres").start()
    for former in ("/the/users/own", None):
        monkeypatch.setenv(VARIABLE, former) if former else monkeypatch.delenv(VARIABLE)
        with logged_in(endpoint):
            assert os.environ[VARIABLE] != former
        assert os.environ.get(VARIABLE) == former


def test_psql_logs_in_by_host_and_port(create: Create) -> None:
    engine = create("postgres")
    psql = shutil.which("psql") or shutil.which("psql", path=str(engine.programs))
    if psql is None:
        pytest.skip("psql is not installed")
    endpoint = engine.start()
    words = [psql, "-w", "-h", endpoint.host, "-p", str(endpoint.port), "-U", "postgres", "-Atc", "SELECT 7"]
    with logged_in(endpoint):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")
