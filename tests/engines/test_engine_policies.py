"""Every engine × policy: starts, is what it says, keeps its promises as settings, survives a kill, and is
gone at the end."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from recollect.verify import engines
from recollect.verify.providers.server_address import postgres_address
from recollect.verify.wire import pgwire, resp
from tests.engines import rows
from tests.engines.conftest import Create

CELLS = [
    (spec, policy)
    for name, specs in {
        "redis": ("redis@7", "redis@6.2", "valkey"),
        "postgres": ("postgres@15", "postgres@16", "postgres@18"),
        "sqlite": ("sqlite",),
        "chroma": ("chroma",),
    }.items()
    for spec in specs
    for policy in engines.policies(name)
]
CAPABILITIES = {
    "redis": {engines.Pausable, engines.Replicated, engines.Upgradable, engines.Reconfigurable},
    "postgres": {engines.Pausable, engines.Replicated, engines.Upgradable, engines.Reconfigurable},
    "sqlite": {engines.Pausable, engines.Reconfigurable},
    "chroma": {engines.Pausable, engines.Reconfigurable},
}
LOSES_ALL_ON_KILL = {"none", "rdb"}


@pytest.mark.parametrize(("spec", "policy"), CELLS)
def test_a_policy_is_what_it_says_and_data_survives_a_kill(create: Create, spec: str, policy: str) -> None:
    engine = create(spec, policy)
    endpoint = engine.start()

    assert (endpoint.engine, endpoint.policy, endpoint.version) == (engine.name, policy, engine.version)
    promised = engines.policies(spec.partition("@")[0])[policy].read_back
    told = engine.settings()
    assert {name: told.get(name) for name in promised} == dict(promised)

    rows.write(engine, "before the kill")
    if policy == "async-commit":
        # It loses acknowledged commits on a kill, as long as they are only in memory.
        engine.ask("CHECKPOINT")
    engine.kill()
    assert not engine.alive()
    engine.start()
    if policy in LOSES_ALL_ON_KILL:
        assert rows.read(engine) == []
    else:
        assert rows.read(engine) == ["before the kill"]
    assert engine.settings() == told


@pytest.mark.parametrize(
    ("spec", "product", "version"), [("redis@7", "Redis", "7."), ("valkey", "Valkey", "9.")]
)
def test_a_valkey_is_reported_as_a_valkey(create: Create, spec: str, product: str, version: str) -> None:
    endpoint = create(spec).start()
    assert endpoint.product == product
    assert endpoint.version.startswith(version)


@pytest.mark.parametrize("spec", ["redis@7", "redis@6.2", "valkey"])
def test_redis_answers_on_its_socket_and_on_its_port(create: Create, spec: str) -> None:
    endpoint = create(spec).start()
    assert stat.S_ISSOCK(endpoint.socket.stat().st_mode)
    for address in (
        resp.Address(socket=endpoint.socket),
        resp.Address(host=endpoint.host, port=endpoint.port),
    ):
        with resp.Connection(address) as connection:
            assert connection.ask("PING") == "PONG"


@pytest.mark.parametrize("spec", ["postgres@15", "postgres@18"])
def test_postgres_answers_on_its_socket_and_on_its_port(create: Create, spec: str) -> None:
    endpoint = create(spec).start()
    over_socket = pgwire.Address(port=endpoint.port, socket_folder=endpoint.socket.parent)
    for address in (over_socket, postgres_address(endpoint.socket_url), postgres_address(endpoint.url)):
        with pgwire.Connection(address) as connection:
            assert connection.value("SELECT 1") == "1"


@pytest.mark.parametrize("spec", ["postgres@16", "postgres@18"])
def test_pgvector_works_where_the_build_has_it(create: Create, spec: str) -> None:
    engine = create(spec)
    assert any(feature.startswith("pgvector") for feature in engine.build.features)
    engine.start()
    engine.ask("CREATE EXTENSION vector")
    assert engine.ask("SELECT '[1,2]'::vector <-> '[1,4]'::vector") == [("2",)]


def test_postgres_runs_as_an_ordinary_user_even_when_we_are_root(create: Create) -> None:
    engine = create("postgres")
    engine.start()
    status = Path(f"/proc/{engine.pid}/status").read_text()
    uid = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
    assert uid != 0
    assert uid == os.geteuid() or os.geteuid() == 0


def test_a_long_root_still_has_a_working_socket(create: Create, tmp_path: Path) -> None:
    engine = create("redis", root=tmp_path / ("deep" * 30))
    endpoint = engine.start()
    assert endpoint.path.is_relative_to(tmp_path)
    assert len(os.fsencode(endpoint.socket)) < 108
    with resp.Connection(resp.Address(socket=endpoint.socket)) as connection:
        assert connection.ask("PING") == "PONG"
