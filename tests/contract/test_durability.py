"""Receipts say what a write survives; what was asked for is reached or refused, never quietly less."""

import logging
from pathlib import Path

import pytest

from recollect import Durability, DurabilityUnavailable, Message, open_store
from recollect.verify import engines
from recollect.verify.engines import Engine
from tests.disks import BEST

CASES = [
    ("sqlite", "wal-full", BEST),
    ("sqlite", "wal-normal", Durability.WRITTEN),
    ("sqlite", "delete-full", Durability.WRITTEN),
    ("sqlite", "delete-extra", BEST),
    ("redis", "none", Durability.BUFFERED),
    ("redis", "rdb", Durability.BUFFERED),
    ("redis", "aof-no", Durability.WRITTEN),
    ("redis", "aof-everysec", Durability.BUFFERED),
    ("redis", "aof-always", Durability.FSYNCED),
    ("postgres", "default", Durability.FSYNCED),
    ("postgres", "async-commit", Durability.BUFFERED),
    ("postgres", "fsync-off", Durability.WRITTEN),
]


def _url(engine: Engine, policy: str, folder: Path) -> str:
    if engine.name == "sqlite":
        return f"sqlite:///{folder}/memory.db?policy={policy}"
    return engine.endpoint.socket_url or engine.endpoint.url


@pytest.mark.parametrize(("name", "policy", "given"), CASES, ids=lambda value: getattr(value, "value", value))
async def test_receipts_say_what_the_engine_gives(
    name: str, policy: str, given: Durability, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engines.create(name, policy)
    engine.start()
    try:
        url = _url(engine, policy, tmp_path)
        with caplog.at_level(logging.WARNING, "recollect"):
            async with open_store(url) as store:
                receipt = await store.append("s", [Message("user", "x")])
        assert receipt.durability is given is store.durability
        said = [record for record in caplog.records if record.name == "recollect"]
        assert len(said) == (0 if given is Durability.FSYNCED else 1)
        assert (store.notice is None) == (given is Durability.FSYNCED)
        assert store.notice is None or ("can lose " in store.notice and "; what helps: " in store.notice)
        await _check_asked(url, name, policy, given)
    finally:
        engine.close()


# Reached although the policy does not give it: PostgreSQL commits synchronously when asked to, statement by statement.
REACHED = {("postgres", "async-commit")}


async def _check_asked(url: str, name: str, policy: str, given: Durability) -> None:
    for asked in Durability:
        if asked <= given or (name, policy) in REACHED:
            async with open_store(url, durability=asked) as store:
                receipt = await store.append("s", [Message("user", "x")])
                assert asked <= receipt.durability
        else:
            with pytest.raises(DurabilityUnavailable) as refusal:
                await open_store(url, durability=asked)
            assert len(str(refusal.value)) > 40, "the refusal names the setting to change"


@pytest.mark.parametrize("name", ["sqlite", "redis", "postgres"])
async def test_replicas_that_are_not_there_are_refused(name: str, tmp_path: Path) -> None:
    policy = {"sqlite": "wal-full", "redis": "aof-always", "postgres": "default"}[name]
    engine = engines.create(name, policy)
    engine.start()
    try:
        with pytest.raises(DurabilityUnavailable):
            await open_store(_url(engine, policy, tmp_path), replicas=1)
    finally:
        engine.close()
