"""The doctor on live Redis and Valkey servers: each policy, each way to lose, with its window and its remedy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from recollect.doctor import Diagnosis, Symptom, examine
from recollect.doctor.redis import diagnose
from recollect.doctor.redis_answers import RedisAnswers, read
from recollect.doctor.redis_persistence import save_window_s
from recollect.stores.redis.wire import ReplyError
from recollect.verify import engines
from recollect.verify.engines import Engine
from tests.doctor.bytes import contents
from tests.stores.redis_places import hands_on, started

EXPECTED: dict[str, tuple[int, str | None, float | None]] = {
    "none": (1, "no-persistence", None),
    "rdb": (1, "snapshots-only", 3600.0),
    "aof-no": (1, "fsync-no", 30.0),
    "aof-everysec": (1, "fsync-everysec", 2.0),
    "mixed": (1, "fsync-everysec", 2.0),
    "aof-always": (0, None, None),
}
CELLS = [
    *(("redis@7", policy) for policy in EXPECTED),
    *(("redis@6.2", policy) for policy in ("rdb", "aof-everysec", "aof-always")),
    *(("valkey", policy) for policy in ("none", "aof-everysec", "aof-always")),
]


def url_of(engine: Engine, user: str = "") -> str:
    url = engine.endpoint.socket_url
    assert url is not None
    return f"unix://{user}@{url.partition('@')[2]}" if user else url


async def names(engine: Engine, user: str = "") -> dict[str, Symptom]:
    return named(await examine(url_of(engine, user)))


def named(diagnosis: Diagnosis) -> dict[str, Symptom]:
    return {symptom.name: symptom for symptom in diagnosis.findings if symptom.level != "note"}


@pytest.fixture(scope="module")
def always() -> Iterator[Engine]:
    with started("redis@7", "aof-always") as engine:
        yield engine


@pytest.fixture
def hands(always: Engine) -> Iterator[Any]:
    """The client of an engine that loses nothing; whatever a test changes is set back."""
    with hands_on(always) as client:
        before = client.config_get("*")
        yield client
        for name in ("maxmemory", "maxmemory-policy", "no-appendfsync-on-rewrite", "appendfsync"):
            client.config_set(name, before[name])


@pytest.mark.parametrize(("build", "policy"), CELLS)
async def test_each_policy(build: str, policy: str) -> None:
    code, name, window_s = EXPECTED[policy]
    with started(build, policy) as engine:
        diagnosis = await examine(url_of(engine))
    assert (diagnosis.policy, diagnosis.exit_code) == (policy, code)
    assert (diagnosis.engine, diagnosis.version) == (build.partition("@")[0], engine.version)
    found = named(diagnosis)
    assert list(found) == ([] if name is None else [name])
    if name is not None:
        assert found[name].window_s == window_s
        assert found[name].window
        assert "power-loss" in found[name].when
        assert found[name].procedure
        assert found[name].source


async def test_the_procedure_for_snapshots_keeps_everything_and_survives_a_kill() -> None:
    """What the doctor advises is done, step by step; then it is content, and a kill -9 takes nothing."""
    with started("redis@7", "rdb") as engine:
        with hands_on(engine) as client:
            client.rpush("session", *range(50))
            steps = (await names(engine))["snapshots-only"].procedure
            assert "CONFIG SET appendonly yes" in steps[0]
            client.config_set("appendonly", "yes")
            assert "wait until" in steps[1]
            await until(lambda: _rewritten(client))
            assert "CONFIG REWRITE" in steps[2]
            client.config_rewrite()
            further = (await names(engine))["fsync-everysec"].procedure
            assert "appendfsync always" in further[0]
            client.config_set("appendfsync", "always")
        assert (await examine(url_of(engine))).exit_code == 0
        engine.kill()
        assert isinstance(engine, engines.Reconfigurable)
        engine.reconfigure("aof-always")  # our engines write their own configuration at every start
        with hands_on(engine) as client:
            assert client.llen("session") == 50


def _rewritten(client: Any) -> bool:
    info = client.info("persistence")
    return not info["aof_rewrite_in_progress"] and info["aof_last_bgrewrite_status"] == "ok"


async def until(condition: Any, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "never"
        time.sleep(0.005)


async def test_an_append_only_file_whose_first_rewrite_has_not_ended() -> None:
    with started("redis@7", "rdb") as engine, hands_on(engine) as client:
        client.mset({f"key-{number}": "x" for number in range(500)})
        client.config_set("rdb-key-save-delay", 20_000)  # µs a key: the rewrite takes ten seconds
        client.config_set("appendonly", "yes")
        await until(lambda: client.info("persistence")["aof_rewrite_in_progress"])
        found = await names(engine)
        assert list(found) == ["aof-not-begun"]
        assert "aof_rewrite_in_progress:1" in found["aof-not-begun"].setting
        assert "do not restart" in found["aof-not-begun"].procedure[-1]


async def test_always_that_does_not_fsync_while_a_child_runs(always: Engine, hands: Any) -> None:
    hands.config_set("no-appendfsync-on-rewrite", "yes")
    found = await names(always)
    assert list(found) == ["fsync-pauses"]
    assert "CONFIG SET no-appendfsync-on-rewrite no" in found["fsync-pauses"].procedure[0]
    hands.config_set("no-appendfsync-on-rewrite", "no")
    assert await names(always) == {}


async def test_eviction_is_a_loss_once_there_is_a_limit(always: Engine, hands: Any) -> None:
    hands.config_set("maxmemory-policy", "allkeys-lru")
    diagnosis = await examine(url_of(always))
    assert diagnosis.exit_code == 0
    assert [f.level for f in diagnosis.findings if f.name == "eviction"] == ["note"]
    hands.config_set("maxmemory", "100mb")
    found = await names(always)
    assert list(found) == ["eviction"]
    assert "any session" in found["eviction"].sentence
    hands.config_set("maxmemory-policy", "volatile-ttl")
    assert "sessions with a time to live" in (await names(always))["eviction"].sentence


async def test_replicas_and_the_bound_on_their_lag() -> None:
    with started("redis@7", "aof-always") as engine:
        assert isinstance(engine, engines.Replicated)
        replica = engine.replica()
        try:
            found = await names(engine)
            assert found["failover"].window_s is None
            with hands_on(engine) as client:
                client.config_set("min-replicas-to-write", 1)
                client.config_set("min-replicas-max-lag", 7)
            assert (await names(engine))["failover"].window_s == 7.0
            url = replica.endpoint.socket_url
            assert url is not None
            told = await examine(url)
            assert told.exit_code == 3
            assert list(named(told)) == ["is-a-replica"]
        finally:
            replica.close()


async def test_a_user_without_write_rights_suffices_and_nothing_changes() -> None:
    with started("redis@7", "mixed") as engine, hands_on(engine) as client:
        client.rpush("session", *range(100))
        client.acl_setuser(
            "looker", enabled=True, passwords=["+s3cret"], commands=["+info", "+config|get", "+ping"]
        )
        as_looker = "looker:s3cret"
        with pytest.raises(Exception, match="no permissions"):
            _client(engine, as_looker).set("x", 1)
        client.save()
        data = engine.endpoint.path
        assert data is not None
        before = (client.dump("session"), client.config_get("*"), contents(data))
        changes = client.info("persistence")["rdb_changes_since_last_save"]
        client.config_resetstat()

        diagnosis = await examine(url_of(engine, as_looker))

        used = set(client.info("commandstats"))
        assert diagnosis.policy == "mixed"
        assert used <= {
            "cmdstat_info",
            "cmdstat_config|get",
            "cmdstat_config|resetstat",
            "cmdstat_auth",
            "cmdstat_client|setinfo",
        }
        assert client.info("persistence")["rdb_changes_since_last_save"] == changes
        assert (client.dump("session"), client.config_get("*"), contents(data)) == before


def _client(engine: Engine, user: str) -> Any:
    return redis.Redis.from_url(url_of(engine, user))


@pytest.mark.parametrize(
    ("policy", "code", "name"), [("aof-always", 3, "settings-hidden"), ("rdb", 1, "no-aof")]
)
async def test_config_refused(policy: str, code: int, name: str) -> None:
    """A managed service hides its settings: what INFO still shows is used, the rest cannot be told."""
    with started("redis@7", policy) as engine, hands_on(engine) as client:
        client.acl_setuser("looker", enabled=True, passwords=["+s3cret"], commands=["+info", "+ping"])
        diagnosis = await examine(url_of(engine, "looker:s3cret"))
    assert (diagnosis.exit_code, diagnosis.policy) == (code, None)
    found = named(diagnosis)
    assert list(found) == [name]
    if code == 3:
        assert "refuses CONFIG GET (NOPERM" in found[name].sentence
        assert "+config|get" in found[name].procedure[0]


async def test_everything_refused(always: Engine, hands: Any) -> None:
    hands.acl_setuser("nobody", enabled=True, passwords=["+s3cret"], commands=["+ping"])
    diagnosis = await examine(url_of(always, "nobody:s3cret"))
    assert diagnosis.exit_code == 3


def test_a_folder_that_cannot_be_seen_is_said_to_be_unseen() -> None:
    config = {"appendonly": "yes", "appendfsync": "always", "dir": "/elsewhere"}
    answers = RedisAnswers("redis://x", {"redis_version": "7.0.15", "process_id": "1"}, config, "")
    diagnosis = diagnose(answers)
    assert diagnosis.exit_code == 0
    assert "disk-not-visible" in {symptom.name for symptom in diagnosis.findings}


def test_a_server_that_is_loading_does_not_say_whether_its_log_is_on() -> None:
    refused = ReplyError("NOPERM no CONFIG")
    for loading, told in (("1", False), ("0", True)):
        info = f"redis_version:7.0.15\r\nloading:{loading}\r\naof_enabled:0\r\n".encode()
        diagnosis = diagnose(read("redis://x", [info, refused]))
        assert ("aof_enabled" in diagnosis.settings) == told
        assert ("no-aof" in {symptom.name for symptom in diagnosis.findings}) == told


async def test_the_engines_own_process_shows_its_disk(always: Engine) -> None:
    told = {symptom.name for symptom in (await examine(url_of(always))).findings}
    assert "disk-not-visible" not in told


@pytest.mark.parametrize(
    ("save", "window_s"),
    [("3600 1 300 100 60 10000", 3600.0), ("900 1 60 1", 60.0), ("300 10", None), ("", None)],
)
def test_the_window_of_save_points(save: str, window_s: float | None) -> None:
    assert save_window_s(save) == window_s
