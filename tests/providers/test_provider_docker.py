"""Engines in containers, on a real daemon, from images made here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.verify import engines, providers
from recollect.verify.engines import EngineOptions
from recollect.verify.host import folder
from recollect.verify.host.marker import Marker
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers import docker, docker_sweep
from recollect.verify.providers.server_address import postgres_address, redis_address
from recollect.verify.wire import pgwire, resp
from tests.providers import foreign
from tests.providers.conftest import POSTGRES_16, REDIS_7

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.usefixtures("daemon")]
RUNNER = Path(__file__).parent.parent / "host" / "runner.py"
DEADLINE_S = 60.0


@pytest.fixture
def create() -> Iterator[Any]:
    made: list[engines.Engine] = []

    def make(*arguments: Any, **more: Any) -> Any:
        made.append(engines.create(*arguments, **more))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
    assert left_of(folder.run_marker().name) == []


def left_of(run: str) -> list[str]:
    """Containers, volumes and networks of a run: what has its name in its own or in a label."""
    return [
        item
        for item, attributes in foreign.docker().items()
        if run in json.dumps([attributes["Name"], attributes.get("Labels"), attributes.get("Config")])
    ]


def ask(engine: engines.Engine, *words: str) -> resp.Reply:
    endpoint = engine.endpoint
    with resp.Connection(redis_address(endpoint.url)) as connection:
        return connection.ask(*words)


def test_local_images_are_found_by_name_and_tag() -> None:
    found = {(build.product, build.version, build.location) for build in docker.builds("redis")}
    assert ("Redis", "7.0", REDIS_7) in found
    assert ("Valkey", "9.1") in {build[:2] for build in found}
    assert providers.find("redis@6.2", "docker").version == "6.2"
    assert providers.find("postgres@16", "docker").location == POSTGRES_16


@pytest.mark.parametrize(
    ("storage", "after_kill", "in_a_new_container"),
    [("named", "kept", "kept"), ("anonymous", "kept", None), ("tmpfs", None, None)],
)
def test_what_each_kind_of_storage_keeps(
    create: Any, storage: str, after_kill: str | None, in_a_new_container: str | None
) -> None:
    engine = create("redis@7", "aof-always", provider=f"docker:{storage}")
    engine.start()
    assert all(isinstance(engine, each) for each in (engines.Engine, engines.Pausable, engines.Upgradable))
    assert engine.settings()["appendfsync"] == "always"
    ask(engine, "SET", "row", "kept")
    engine.kill()
    assert not engine.alive()
    engine.start()
    assert ask(engine, "GET", "row") == after_kill
    ask(engine, "SET", "row", "kept")
    engine.reconfigure("aof-everysec")
    assert ask(engine, "GET", "row") == in_a_new_container
    engine.kill()
    engine.wipe()
    engine.start()
    assert ask(engine, "GET", "row") is None


def test_redis_6_to_7_to_6_on_one_volume(create: Any) -> None:
    engine = create("redis@6.2", "aof-always", provider="docker")
    assert engine.start().version.startswith("6.2")
    ask(engine, "SET", "row", "written by 6.2")
    assert engine.upgrade("7").version.startswith("7.")
    assert ask(engine, "GET", "row") == "written by 6.2"
    ask(engine, "SET", "row", "written by 7")
    engine.downgrade("6.2")
    assert ask(engine, "GET", "row") != "written by 7", "lost, in silence"


def test_valkey_pause_reconfigure_and_the_users_own_file(create: Any, tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("maxmemory 64mb\nport 1\ndir /nowhere\n")
    engine = create("valkey", config=own, provider="docker")
    endpoint = engine.start()
    assert (endpoint.product, endpoint.policy) == ("Valkey", "custom")
    assert engine.settings()["maxmemory"] == str(64 * 1024 * 1024)
    engine.pause()
    engine.resume()
    assert engine.reconfigure("aof-everysec").policy == "aof-everysec"
    assert engine.settings()["appendonly"] == "yes"


def test_postgres_survives_a_kill_with_its_data(create: Any) -> None:
    engine = create("postgres@16", "fsync-off", provider="docker")
    endpoint = engine.start()
    assert endpoint.version.startswith("16.")
    assert engine.settings()["fsync"] == "off"
    with pytest.raises(pgwire.PgError, match="asks for a password"):
        pgwire.Connection(pgwire.Address(port=endpoint.port, host=endpoint.host))
    with pgwire.Connection(postgres_address(endpoint.url)) as connection:
        connection.ask("CREATE TABLE rows AS SELECT 7 AS value")
    engine.kill()
    endpoint = engine.start()
    with pgwire.Connection(postgres_address(endpoint.url)) as connection:
        assert connection.value("SELECT value FROM rows") == "7"


def test_chroma_keeps_its_collections(create: Any) -> None:
    engine = create("chroma", provider="docker")
    endpoint = engine.start()
    assert (endpoint.product, endpoint.version, endpoint.policy) == ("Chroma", "1.5", "server")
    _collections(endpoint, "POST", {"name": "memories"})
    engine.kill()
    assert [found["name"] for found in _collections(engine.start())] == ["memories"]
    engine.kill()
    engine.wipe()
    assert _collections(engine.start()) == []


def _collections(endpoint: engines.Endpoint, method: str = "GET", body: Any = None) -> Any:
    where = f"{endpoint.url}/api/v2/tenants/default_tenant/databases/default_database/collections"
    asked = urllib.request.Request(where, body and json.dumps(body).encode(), method=method)
    asked.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("spec", ["redis@7", "postgres@16"])
def test_a_replica_lags_exactly_and_takes_over(create: Any, spec: str) -> None:
    """In a second container, which goes with the first."""
    engine = create(spec, provider="docker")
    engine.start()
    with_replica(engine)


def with_replica(engine: Any) -> None:
    replica = engine.replica()
    assert engine.endpoint.replicas == (replica.endpoint.url,)
    _add(engine.endpoint, "one")
    replica.wait_caught_up()
    replica.pause_replay()
    _add(engine.endpoint, "two")
    assert _rows(replica.endpoint) == ["one"]
    replica.resume_replay()
    replica.wait_caught_up()
    assert _rows(replica.endpoint) == ["one", "two"]
    replica.pause_replay()
    _add(engine.endpoint, "three")
    engine.kill()
    _add(replica.promote(), "four")
    assert _rows(replica.endpoint) == ["one", "two", "four"], "the lag is what the failover loses, exactly"


def _add(endpoint: engines.Endpoint, row: str) -> None:
    if endpoint.engine == "redis":
        with resp.Connection(redis_address(endpoint.url)) as connection:
            connection.ask("RPUSH", "rows", row)
        return
    with pgwire.Connection(postgres_address(endpoint.url)) as connection:
        connection.ask(f"CREATE TABLE IF NOT EXISTS rows (value text); INSERT INTO rows VALUES ('{row}')")


def _rows(endpoint: engines.Endpoint) -> Any:
    if endpoint.engine == "redis":
        with resp.Connection(redis_address(endpoint.url)) as connection:
            return connection.ask("LRANGE", "rows", "0", "-1")
    with pgwire.Connection(postgres_address(endpoint.url)) as connection:
        return [row for (row,) in connection.ask("SELECT value FROM rows")]


def test_a_container_that_ends_at_once_shows_its_own_last_words(create: Any, tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("no-such-setting 1\n")
    engine = create("redis@7", config=own, provider="docker")
    with pytest.raises(engines.StartFailed) as caught:
        engine.start()
    assert "no-such-setting" in caught.value.log


def test_an_image_that_is_not_here_is_not_pulled() -> None:
    with pytest.raises(engines.NotInstalled, match="To get it: `docker pull redis:8`"):
        engines.create("redis@8", provider="docker")
    with pytest.raises(engines.NotInstalled, match=r"`docker pull no-such/image:1`$"):
        docker.ensure_local("no-such/image:1")


def test_unknown_storage_suggests_the_nearest() -> None:
    with pytest.raises(engines.UnknownName, match="unknown docker storage 'tempfs': did you mean 'tmpfs'"):
        engines.create("redis@7", provider="docker:tempfs", options=EngineOptions())


@pytest.mark.parametrize("warden_too", [False, True])
def test_a_killed_runner_leaves_no_container_and_no_volume(warden_too: bool) -> None:
    runner = subprocess.Popen(
        [sys.executable, str(RUNNER), "redis@7/docker"], stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    with runner.stdout:
        told = json.loads(runner.stdout.readline())
    assert len(left_of(told["run"])) == 2, "a container and its volume"
    if warden_too:
        os.kill(told["warden"], signal.SIGKILL)
    runner.kill()
    runner.wait()
    if warden_too:
        folder.sweep()
    wait_until(lambda: left_of(told["run"]) == [], DEADLINE_S, "containers were left")
    wait_until(lambda: not Path(told["folder"]).exists(), DEADLINE_S, "the folder was left")


def test_containers_and_volumes_of_others_stay(create: Any) -> None:
    """Named and labelled as ours, by somebody who has seen a run's name; and without labels at all."""
    run = Marker.new()
    another = Marker.new()
    told = [
        {docker_sweep.RUN_LABEL: run.name},
        {docker_sweep.RUN_LABEL: run.name, docker_sweep.PROOF_LABEL: another.proof},
        {docker_sweep.RUN_LABEL: run.name, docker_sweep.PROOF_LABEL: ""},
        {"com.docker.compose.project": f"recollect-{run.name}-1"},
        {},
    ]
    with contextlib.closing(docker.client()) as client:
        made: list[Any] = []
        for number, labels in enumerate(told):
            name = f"recollect-{run.name}-{number}"
            made.append(client.containers.create(REDIS_7, name=name, labels=labels))
            made.append(client.volumes.create(name, labels=labels))
            made.append(client.networks.create(name, labels=labels))
        try:
            before = foreign.docker()
            ours = {docker_sweep.RUN_LABEL: run.name, docker_sweep.PROOF_LABEL: run.proof}
            client.containers.create(REDIS_7, name=f"recollect-{run.name}-ours", labels=ours)
            client.volumes.create(f"recollect-{run.name}-ours", labels=ours)
            client.networks.create(f"recollect-{run.name}-ours", labels=ours)
            docker_sweep.sweep(run.name)
            engine = create("redis@7", provider="docker")  # a whole life beside them
            engine.start()
            engine.close()
            assert foreign.docker() == before
        finally:
            for item in made:
                item.remove(v=True) if hasattr(item, "image") else item.remove()


@pytest.mark.parametrize("spec", ["redis@7", "postgres@16"])
def test_a_container_is_not_open_to_the_network(create: Any, spec: str) -> None:
    if not docker.is_on_this_host():
        pytest.skip("the daemon is elsewhere")
    create(spec, provider="docker").start()
    published = [
        place["HostIp"]
        for attributes in foreign.docker().values()
        for places in attributes.get("NetworkSettings", {}).get("Ports", {}).values()
        for place in places or ()
    ]
    assert published == ["127.0.0.1"]


def test_a_redis_in_a_container_obeys_strangers_only_so_far(create: Any) -> None:
    endpoint = create("redis@7", provider="docker").start()
    with resp.Connection(resp.Address(host=endpoint.host, port=endpoint.port)) as stranger:
        assert stranger.ask("SET", "row", "kept") == "OK"
        with pytest.raises(resp.RespError, match="NOPERM"):
            stranger.ask("CONFIG", "SET", "dir", "/tmp")
