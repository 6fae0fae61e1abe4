"""The doctor on a PostgreSQL primary with standbys: who acknowledges, who can catch up, are there two primaries?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from recollect import EngineUnavailable
from recollect.doctor import Symptom, examine
from recollect.doctor.postgres_standbys import LogSlot, StandbyAnswers, symptoms
from recollect.stores.postgres.hosts import HostsNow
from recollect.verify import engines
from recollect.verify.engines.postgres_ha import PostgresHaEngine
from recollect.verify.host.waiting import wait_until


@pytest.fixture(scope="module")
def group() -> Iterator[PostgresHaEngine]:
    engine = engines.create("postgres-ha", "any-1")
    assert isinstance(engine, PostgresHaEngine)
    engine.start()
    yield engine
    engine.close()


async def findings(group: PostgresHaEngine) -> dict[str, Symptom]:
    return {symptom.name: symptom for symptom in (await examine(group.endpoint.url)).findings}


async def test_a_primary_that_hangs_is_named_and_no_promotion_is_waited_for(group: PostgresHaEngine) -> None:
    primary = group.primary()
    primary.pause()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(EngineUnavailable) as told:
                await examine(group.endpoint.url, timeout_s=1000)
    finally:
        primary.resume()
    for standby in group.standbys():
        assert f"127.0.0.1:{standby.port}" in str(told.value)
    assert str(told.value).endswith(f"; no answer from 127.0.0.1:{primary.port})")


async def test_a_group_from_whole_to_two_primaries(group: PostgresHaEngine) -> None:
    old, (first, second) = group.primary(), group.standbys()
    found = await findings(group)
    assert found["some-standbys-acknowledge"].sentence.startswith("1 of 2 standbys acknowledge")
    assert not {"two-primaries", "too-few-standbys", "slot-unused", "log-not-kept", "failover"} & found.keys()
    assert not {"standbys-left-behind", "servers-that-do-not-answer"} & found.keys()

    old.ask("SELECT pg_create_physical_replication_slot('nobodys', true)")
    assert "slot-unused" in await findings(group)

    second.kill()
    group.promote(first)
    found = await findings(group)
    assert f"127.0.0.1:{old.port} on timeline 1" in found["two-primaries"].setting
    assert f"stop 127.0.0.1:{old.port}" in found["two-primaries"].procedure[0]
    assert found["two-primaries"].level == "loss"

    old.kill()
    wait_until(lambda: first.ask("SELECT count(*) FROM pg_stat_replication") == [("0",)], 30, "it stayed")
    found = await findings(group)
    assert found["too-few-standbys"].sentence == (
        "every commit waits: 1 standbys have to acknowledge, and 0 are there"
    )
    assert "two-primaries" not in found
    assert found["servers-that-do-not-answer"].sentence.endswith(f":{old.port}, 127.0.0.1:{second.port}")

    second.start()  # it still waits for the old primary
    found = await findings(group)
    assert f"(127.0.0.1:{second.port})" in found["standbys-left-behind"].sentence
    assert found["servers-that-do-not-answer"].sentence.endswith(f": 127.0.0.1:{old.port}")


@pytest.mark.parametrize(
    ("answers", "level"),
    [
        (StandbyAnswers(hosts=HostsNow(lonely=("b",))), "loss"),
        (StandbyAnswers(1, 1, "ANY 1 (*)", hosts=HostsNow(lonely=("b",))), "note"),
        (StandbyAnswers(1, hosts=HostsNow(lonely=("b",)), by_patroni=True), "note"),
    ],
)
def test_a_standby_left_behind_is_a_loss_if_nothing_keeps_it_from_being_promoted(
    answers: StandbyAnswers, level: str
) -> None:
    [found] = [one for one in symptoms(answers) if one is not None and one.name == "standbys-left-behind"]
    assert found.level == level


@pytest.mark.parametrize(
    ("answers", "names"),
    [
        (StandbyAnswers(), []),
        (StandbyAnswers(connected=1, wal_keep="0"), ["log-not-kept"]),
        (StandbyAnswers(connected=1, wal_keep="1GB"), []),
        (StandbyAnswers(connected=1, slots=(LogSlot("a", True, "reserved"),)), []),
        (StandbyAnswers(slots=(LogSlot("a", False, "lost"),)), ["slot-lost"]),
        (StandbyAnswers(2, 2, "FIRST 2 (*)", "on", "1GB"), []),
        (StandbyAnswers(2, 2, "FIRST 2 (*)", "local", "1GB"), []),
        (StandbyAnswers(hosts=HostsNow({"a": 2})), []),
        (StandbyAnswers(hosts=HostsNow({"a": 2}, ("b",))), ["standbys-left-behind"]),
        (StandbyAnswers(hosts=HostsNow({"a": 2}, silent=("c",))), ["servers-that-do-not-answer"]),
        (StandbyAnswers(2, 1, "one", "on", "1GB"), ["some-standbys-acknowledge"]),
        (StandbyAnswers(2, 1, "one", "on", "1GB", by_patroni=True), ["patroni"]),
        (
            StandbyAnswers(2, 1, "one", "on", "1GB", hosts=HostsNow({"a": 2, "b": 1}), by_patroni=True),
            ["two-primaries", "patroni"],
        ),
    ],
)
def test_what_is_said(answers: StandbyAnswers, names: list[str]) -> None:
    assert [symptom.name for symptom in symptoms(answers) if symptom is not None] == names
