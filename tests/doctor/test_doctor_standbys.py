"""The doctor on a PostgreSQL primary with standbys: who acknowledges, who can catch up, are there two primaries?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recollect.doctor import Symptom, examine
from recollect.doctor.postgres_standbys import LogSlot, StandbyAnswers, symptoms
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


async def test_a_group_from_whole_to_two_primaries(group: PostgresHaEngine) -> None:
    old, (first, second) = group.primary(), group.standbys()
    found = await findings(group)
    assert found["some-standbys-acknowledge"].sentence.startswith("1 of 2 standbys acknowledge")
    assert not {"two-primaries", "too-few-standbys", "slot-unused", "log-not-kept", "failover"} & found.keys()

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
        (StandbyAnswers(primaries={"a": 2}), []),
    ],
)
def test_what_is_said(answers: StandbyAnswers, names: list[str]) -> None:
    assert [symptom.name for symptom in symptoms(answers) if symptom is not None] == names
