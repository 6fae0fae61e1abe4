"""Stop, wipe, pause, environment, custom configuration, another policy on the same data."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.verify import engines
from recollect.verify.host import folder
from recollect.verify.host.waiting import wait_until
from recollect.verify.wire import resp
from tests.engines import rows
from tests.engines.conftest import Create

SERVERS = ["redis", "postgres", "sqlite", "chroma"]


@pytest.mark.parametrize("spec", SERVERS)
def test_stop_and_start_keeps_data_and_wipe_loses_it(create: Create, spec: str) -> None:
    engine = create(spec)
    first = engine.start()
    rows.write(engine, "kept")
    engine.stop()
    assert not engine.alive()
    assert engine.start() == first, "the endpoint stays the same, so clients can reconnect"
    assert rows.read(engine) == ["kept"]
    with pytest.raises(engines.EngineError, match="before its data is wiped"):
        engine.wipe()
    engine.kill()
    engine.wipe()
    engine.start()
    rows.write(engine, "new")
    assert rows.read(engine) == ["new"]


def test_a_polite_stop_saves_what_a_kill_loses(create: Create) -> None:
    engine = create("redis", "rdb")
    engine.start()
    rows.write(engine, "one")
    engine.restart()
    assert rows.read(engine) == ["one"]
    rows.write(engine, "two")
    engine.kill()
    engine.start()
    assert rows.read(engine) == ["one"]


def test_a_running_engine_is_not_started_twice(create: Create) -> None:
    engine = create("redis")
    engine.start()
    with pytest.raises(engines.EngineError, match="already running"):
        engine.start()


def test_stop_and_kill_of_a_dead_engine_are_harmless(create: Create) -> None:
    engine = create("redis")
    engine.stop()
    engine.kill()
    engine.start()
    engine.kill()
    engine.kill()
    engine.stop()


@pytest.mark.parametrize("spec", ["redis", "postgres"])
def test_a_paused_engine_answers_nothing_until_resumed(create: Create, spec: str) -> None:
    engine = create(spec)
    endpoint = engine.start()
    assert isinstance(engine, engines.Pausable)
    engine.pause()
    with socket.create_connection((endpoint.host, endpoint.port), timeout=0.2) as connection:
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
    engine.resume()
    rows.write(engine, "after")
    assert rows.read(engine) == ["after"]


def test_a_paused_engine_can_be_stopped_and_killed(create: Create) -> None:
    engine = create("redis", "rdb")
    engine.start()
    rows.write(engine, "saved on the way out")
    engine.pause()
    engine.restart()
    assert rows.read(engine) == ["saved on the way out"]
    engine.pause()
    engine.kill()
    assert not engine.alive()


@pytest.mark.parametrize("spec", SERVERS)
def test_the_environment_reaches_the_server_through_any_change_of_user(create: Create, spec: str) -> None:
    """A library that cannot be preloaded makes the dynamic linker complain in the server's own log."""
    engine = create(spec, options=engines.EngineOptions(env={"LD_PRELOAD": "/recollect/at-creation.so"}))
    engine.start()
    assert "at-creation.so" in engine.logs()
    engine.kill()
    engine.start({"LD_PRELOAD": "/recollect/at-start.so"})
    assert "at-start.so" in engine.logs()
    engine.kill()
    engine.start()
    assert "at-start.so" not in engine.logs(), "the environment of a start is for that start"


def test_a_data_folder_of_our_own_is_used(create: Create) -> None:
    first = create("postgres", options=engines.EngineOptions(root=folder.current() / "elsewhere"))
    first.start()
    rows.write(first, "moved")
    first.stop()
    image = folder.current() / "image"
    first.data.rename(image)
    second = create("postgres", options=engines.EngineOptions(data=image))
    assert second.start().path == image
    assert rows.read(second) == ["moved"]


def test_redis_with_the_users_own_file(create: Create, config: Callable[[str], Path]) -> None:
    ours = "port 1\ndaemonize yes\ndir /nowhere\nreplicaof 10.0.0.1 6379\n"
    own = config('appendonly yes\nappendfsync always\nrequirepass "p@ss word"\n' + ours)
    engine = create("redis", config=own)
    endpoint = engine.start()
    assert endpoint.policy == "custom"
    assert engine.settings()["appendfsync"] == "always"
    assert "role:master" in engine.ask("INFO", "replication")
    assert "p%40ss%20word" in endpoint.url
    with (
        resp.Connection(resp.Address(host=endpoint.host, port=endpoint.port)) as connection,
        pytest.raises(resp.RespError, match="NOAUTH"),
    ):
        connection.ask("PING")
    rows.write(engine, "one")
    engine.kill()
    engine.start()
    assert rows.read(engine) == ["one"]


def test_postgres_with_the_users_own_file(create: Create, config: Callable[[str], Path]) -> None:
    own = config("synchronous_commit = off\nport = 1\nwork_mem = '7MB'\nlogging_collector = on\n")
    engine = create("postgres", config=own)
    assert engine.start().policy == "custom"
    assert engine.settings()["synchronous_commit"] == "off"
    assert engine.ask("SHOW work_mem") == [("7MB",)]


@pytest.mark.parametrize(
    ("spec", "line", "words"),
    [
        ("redis", "no-such-setting 1", "no-such-setting"),
        ("postgres", "no_such_setting = 1", "no_such_setting"),
    ],
)
def test_a_bad_setting_is_shown_in_the_engines_own_words(
    create: Create, config: Callable[[str], Path], spec: str, line: str, words: str
) -> None:
    engine = create(spec, config=config(line + "\n"))
    with pytest.raises(engines.StartFailed) as caught:
        engine.start()
    assert "a setting that this version does not know" in caught.value.reason
    assert words in caught.value.log
    assert not engine.alive()


@pytest.mark.parametrize(
    ("spec", "before", "after"),
    [
        ("redis", "aof-everysec", "aof-always"),
        ("postgres", "default", "async-commit"),
        ("sqlite", "wal-full", "delete-extra"),
    ],
)
def test_another_policy_on_the_same_data(create: Create, spec: str, before: str, after: str) -> None:
    engine = create(spec, before)
    engine.start()
    rows.write(engine, "kept")
    assert engine.reconfigure(after).policy == after
    promised = engines.policies(spec)[after].read_back
    told = engine.settings()
    assert {name: told[name] for name in promised} == dict(promised)
    assert rows.read(engine) == ["kept"]


def test_redis_from_rdb_to_aof_loses_everything_in_silence(create: Create) -> None:
    """The kit must be able to show it: saved, killed, and started with appendonly, Redis ignores the dump."""
    engine = create("redis", "rdb")
    engine.start()
    rows.write(engine, "saved")
    engine.ask("SAVE")
    engine.kill()
    engine.reconfigure("aof-everysec")
    assert rows.read(engine) == []


def test_a_server_that_died_by_itself_is_started_again(create: Create) -> None:
    """Only the postmaster is killed, as a fault inside it would; its children still hold the shared memory."""
    engine = create("postgres")
    engine.start()
    rows.write(engine, "kept")
    os.kill(engine.pid, signal.SIGKILL)
    wait_until(lambda: not engine.alive(), 10, "the postmaster did not die")
    with pytest.raises(engines.EngineError, match="ended on its own"):
        engine.pause()
    engine.start()
    assert rows.read(engine) == ["kept"]
