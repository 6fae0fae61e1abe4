"""A service of a user's compose file, on a real daemon."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest

from recollect.verify import engines
from recollect.verify.host import folder
from recollect.verify.host.waiting import wait_until
from recollect.verify.providers import compose
from recollect.verify.providers.server_address import redis_address
from recollect.verify.running.scenario import Scenario
from recollect.verify.wire import pgwire, resp
from tests.faults.cells import run_cell
from tests.providers.conftest import POSTGRES_16, REDIS_7
from tests.providers.test_provider_docker import DEADLINE_S, RUNNER, left_of, with_replica

pytestmark = [pytest.mark.xdist_group("docker"), pytest.mark.usefixtures("daemon", "compose_command")]

FILE = f"""
version: "2.4"
services:
  memory:
    image: {REDIS_7}
    container_name: the-one-and-only
    restart: always
    command: redis-server --appendonly yes --appendfsync always --requirepass s3cret --repl-diskless-sync-delay 0
    ports: ["6379:6379"]
    volumes: ["memory:/data", "./settings:/settings"]
  db:
    image: {POSTGRES_16}
    environment: {{POSTGRES_USER: app, POSTGRES_PASSWORD: "p@ss", POSTGRES_DB: chats}}
    ports: ["127.0.0.1:5432:5432"]
    volumes: ["db:/var/lib/postgresql"]
    healthcheck:
      test: ["CMD-SHELL", "test -s /var/lib/postgresql/data/postmaster.pid"]
      interval: 200ms
      retries: 100
  closed:
    image: {REDIS_7}
    command: redis-server
    ports: ["6379"]
  foreign:
    image: no-such/image:1
  unpublished:
    image: {REDIS_7}
volumes:
  memory: {{name: the-users-own-volume}}
  db: {{}}
"""


@pytest.fixture(scope="session")
def compose_command() -> None:
    try:
        compose.command()
    except engines.NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "settings").mkdir()
    written = tmp_path / "compose.yaml"
    written.write_text(FILE.replace("  foreign:\n    image: no-such/image:1\n", ""))
    return written


@pytest.fixture
def create(file: Path) -> Iterator[Any]:
    made: list[engines.Engine] = []

    def make(engine: str, service: str) -> Any:
        made.append(engines.create(engine, provider=f"compose:{file}#{service}"))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
    assert left_of(folder.run_marker().name) == []


def test_redis_of_a_compose_file(create: Any) -> None:
    engine = create("redis", "memory")
    first = engine.start()
    assert (first.policy, first.provider) == ("custom", "compose")
    assert ":s3cret@" in first.url
    assert first.port != 6379, "a random port, whatever the file says"
    assert engine.settings()["appendfsync"] == "always"

    def ask(*words: str) -> resp.Reply:
        endpoint = engine.endpoint
        address = resp.Address(host=endpoint.host, port=endpoint.port, password="s3cret")
        with resp.Connection(address) as connection:
            return connection.ask(*words)

    ask("SET", "row", "kept")
    engine.kill()
    assert not engine.alive()
    engine.start()
    assert ask("GET", "row") == "kept"
    engine.pause()
    engine.resume()
    engine.stop()
    engine.wipe()
    engine.start()
    assert ask("GET", "row") is None
    with_replica(engine)


def test_a_database_and_the_cache_beside_it(create: Any) -> None:
    """It waits for its health check. The cache is brought up too, and keeps its data when the database loses it."""
    engine = create("postgres", "db,memory")
    endpoint = engine.start()
    _ask(endpoint, "SET", "row", "cached")
    assert "s3cret" not in repr(endpoint)
    assert endpoint.url.startswith("postgresql://app:p%40ss@")
    assert endpoint.url.endswith("/chats")
    address = pgwire.Address(
        port=endpoint.port, host=endpoint.host, user="app", password="p@ss", database="chats"
    )
    with pgwire.Connection(address) as connection:
        assert connection.value("SELECT current_database()") == "chats"
    wrong = pgwire.Address(
        port=endpoint.port, host=endpoint.host, user="app", password="guess", database="chats"
    )
    with pytest.raises(pgwire.PgError, match="password authentication failed"):
        pgwire.Connection(wrong)
    with pgwire.Connection(address) as connection:
        connection.ask("CREATE TABLE rows (value text)")
    engine.kill()
    engine.wipe()
    assert _ask(engine.start(), "GET", "row") == "cached"
    with pgwire.Connection(address) as connection:
        assert connection.value("SELECT count(*) FROM pg_tables WHERE tablename = 'rows'") == "0"


def _ask(endpoint: engines.Endpoint, *words: str) -> resp.Reply:
    with resp.Connection(redis_address(endpoint.services["memory"])) as connection:
        return connection.ask(*words)


def test_the_file_is_isolated_before_it_is_run(create: Any) -> None:
    engine = create("redis", "memory")
    definition = engine._service.definition
    assert "container_name" not in definition
    assert "restart" not in definition
    assert "name" not in (engine._service.resolved["volumes"]["memory"] or {})
    mounts = [str(volume) for volume in definition["volumes"]]
    assert any("settings" in mount and ("ro" in mount or "True" in mount) for mount in mounts)


def test_a_folder_of_the_host_that_holds_the_data_stays_as_it_is(file: Path, create: Any) -> None:
    """Mounted read-only, the server could not write; mounted as the file says, faults would break the user's data."""
    data = file.parent / "data"
    data.mkdir()
    (data / "notes.txt").write_text("the user's")
    (file.parent / "extra.conf").write_text("")
    file.write_text(
        file.read_text().replace('"memory:/data"', '"./data:/data", "./extra.conf:/data/extra.conf"')
    )
    engine = create("redis", "memory")
    endpoint = engine.start()
    with resp.Connection(resp.Address(host=endpoint.host, port=endpoint.port, password="s3cret")) as asked:
        assert asked.ask("SET", "row", "kept") == "OK"
    assert [path.name for path in data.iterdir()] == ["notes.txt"]
    [mount] = [mount for mount in engine._service.mounts() if mount["Destination"] == "/data"]
    assert mount["Type"] == "volume"
    assert any("extra.conf:ro" in str(volume) for volume in engine._service.definition["volumes"])


def test_a_runner_that_is_killed_while_compose_is_at_work_leaves_nothing(file: Path) -> None:
    """Compose would go on without it, and create what nobody removes."""
    argv = [sys.executable, str(RUNNER), f"redis/compose:{file}#memory"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as runner:
        wait_until(lambda: bool(_at_work(file)), DEADLINE_S, "compose did not begin")
        [(pid, run)] = _at_work(file)
        # The network is its first.
        wait_until(lambda: bool(left_of(run)), DEADLINE_S, "compose created nothing")
        runner.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), DEADLINE_S, "compose goes on")
    wait_until(
        lambda: not (Path(gettempdir()) / f"{folder.PREFIX}{run}").exists(), DEADLINE_S, "its folder was left"
    )
    assert left_of(run) == []


def _at_work(file: Path) -> list[tuple[int, str]]:
    """Processes of `compose up` for this file, and the runs that they belong to."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text().split("\0")
            if str(file.parent) in words and "up" in words:
                found.append((int(process.name), words[words.index("-p") + 1].split("-")[1]))
    return found


def test_bad_input(file: Path) -> None:
    def create(place: str) -> None:
        engines.create("redis", provider=f"compose:{place}")

    with pytest.raises(
        engines.UnknownName, match=r"unknown service in compose\.yaml 'memroy': did you mean 'memory'"
    ):
        create(f"{file}#memroy")
    with pytest.raises(engines.UnknownName, match=r"unknown service in compose\.yaml 'dv'"):
        create(f"{file}#memory,dv")
    with pytest.raises(engines.EngineError, match="names no service; write --provider compose:FILE#SERVICE"):
        create(f"{file}#memory,")
    with pytest.raises(engines.EngineError, match="no compose file"):
        create(f"{file}.not#memory")
    with pytest.raises(engines.EngineError, match="its policy is 'custom'; give no other"):
        engines.create("redis", "rdb", provider=f"compose:{file}#memory")
    with pytest.raises(engines.UnknownName, match="unknown engine for compose 'sqlite'"):
        engines.create("sqlite", provider=f"compose:{file}#memory")
    file.write_text(FILE)
    with pytest.raises(engines.NotInstalled, match="image no-such/image:1 is not on this machine"):
        create(f"{file}#memory")
    file.write_text("services: [")
    with pytest.raises(engines.EngineError, match=r"compose config of .* failed"):
        create(f"{file}#memory")


def test_an_external_volume_is_refused(file: Path) -> None:
    file.write_text(
        FILE.replace("{name: the-users-own-volume}", "{external: true}").replace(
            "  foreign:\n    image: no-such/image:1\n", ""
        )
    )
    with pytest.raises(engines.NotOurs, match="its data is not ours to break"):
        engines.create("redis", provider=f"compose:{file}#memory")


def test_a_service_without_a_published_port_says_so(create: Any) -> None:
    engine = create("redis", "unpublished")
    with pytest.raises(engines.EngineError, match="publishes no port 6379"):
        engine.start()
    assert not engine.alive()


def test_a_recycled_volume_of_a_compose_file(file: Path, tmp_path: Path) -> None:
    """Its folder cannot be reached from outside, so the volume goes with the container; our store says so."""
    place = f"compose:{file}#memory"
    cell = Scenario(
        target="redis", engine="redis", policy="custom", fault="wipe-volume", provider=place, seed=1
    )
    verdict = run_cell(cell, tmp_path)
    assert verdict.status == "documented-loss"
    assert [(anomaly.name, anomaly.silent) for anomaly in verdict.anomalies] == [("unreadable", False)]


def test_a_redis_that_denies_everyone_outside_says_how_to_open_it(create: Any) -> None:
    with pytest.raises(engines.EngineError, match="--protected-mode no"):
        create("redis", "closed").start()
