"""Streaming replicas: lag that is exact, and failover."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.verify.wire import resp
from tests.engines import rows
from tests.engines.conftest import Create

READS = 50


@pytest.mark.parametrize("spec", ["redis@7", "redis@6.2", "valkey", "postgres@15", "postgres@18"])
def test_lag_is_exact_and_a_failover_has_what_was_replayed(create: Create, spec: str) -> None:
    primary = create(spec)
    primary.start()
    replica: Any = primary.replica()
    assert primary.endpoint.replicas == (replica.endpoint.url,)

    rows.write(primary, "one")
    replica.wait_caught_up()
    assert rows.read(replica.engine) == ["one"]

    replica.pause_replay()
    rows.write(primary, "two")
    assert [rows.read(replica.engine) for _ in range(READS)] == [["one"]] * READS
    replica.resume_replay()
    replica.wait_caught_up()
    assert rows.read(replica.engine) == ["one", "two"]

    replica.pause_replay()
    rows.write(primary, "three")
    primary.kill()
    endpoint = replica.promote()
    assert endpoint == replica.endpoint
    rows.write(replica.engine, "four")
    assert rows.read(replica.engine) == ["one", "two", "four"], "the lag is what the failover loses, exactly"


def test_wait_returns_no_replica_while_replay_is_paused(create: Create) -> None:
    primary = create("redis")
    primary.start()
    replica = primary.replica()
    rows.write(primary, "one")
    replica.wait_caught_up()
    replica.pause_replay()
    with resp.Connection(primary.address) as connection:
        connection.ask("SET", "after", "the pause")
        assert connection.ask("WAIT", "1", "50") == 0


@pytest.mark.parametrize("spec", ["redis", "postgres"])
def test_closing_a_primary_closes_its_replicas(create: Create, spec: str) -> None:
    primary = create(spec)
    primary.start()
    replica = primary.replica()
    primary.close()
    assert not replica.engine.alive()
    assert not replica.engine.folder.exists()
