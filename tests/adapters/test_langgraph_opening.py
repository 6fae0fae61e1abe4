"""What a saver says when it is opened: what could be lost, and which engines are not for checkpoints."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recollect import CannotOpen
from recollect.adapters.langgraph import RecollectSaver
from recollect.verify import engines
from recollect.verify.engines import Engine, Replicated
from tests.stores.redis_places import address, free_port, started


def _said(url: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "recollect"), RecollectSaver(url):
        return [record.getMessage() for record in caplog.records]


@contextmanager
def _postgres(policy: str) -> Iterator[Engine]:
    engine = engines.create("postgres", policy)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def test_sqlite_says_once_what_can_be_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [said] = _said(f"sqlite:///{tmp_path}/memory.db?policy=wal-normal", caplog)
    assert "memory.db: can lose " in said
    assert _said(f"sqlite:///{tmp_path}/memory.db?policy=wal-full", caplog) == []


def test_postgres_says_once_what_can_be_lost(caplog: pytest.LogCaptureFixture) -> None:
    with _postgres("async-commit") as engine:
        [said] = _said(engine.endpoint.url, caplog)
        assert "PostgreSQL: can lose " in said
        assert _said(f"{engine.endpoint.url}", caplog) == [said]


@pytest.mark.parametrize(
    ("policy", "loss"),
    [("none", "can lose everything"), ("aof-everysec", "can lose "), ("aof-always", None)],
)
def test_redis_says_once_what_can_be_lost(
    policy: str, loss: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with started("redis@7", policy) as engine:
        said = _said(address(engine), caplog)
        assert len(said) == (loss is not None)
        assert loss is None or loss in said[0]


def test_a_replica_is_refused_at_open() -> None:
    with started("redis@7", "aof-everysec") as engine:
        assert isinstance(engine, Replicated)
        with pytest.raises(CannotOpen, match="is a replica, which takes no writes; open its primary"):
            RecollectSaver(engine.replica().endpoint.url)


def test_a_node_of_a_cluster_is_refused_at_open(tmp_path: Path) -> None:
    """Even one with all slots: the scripts use keys of several."""
    config = tmp_path / "redis.conf"
    config.write_text(f"cluster-enabled yes\ncluster-port {free_port()}\n")
    with started("redis@7", "custom", config) as engine:
        with pytest.raises(CannotOpen, match="cluster, which checkpoints are not for; give a single primary"):
            RecollectSaver(address(engine))
