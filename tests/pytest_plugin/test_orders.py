"""A suite tries orders of events as one of its tests."""

import re

import pytest

from recollect.verify.explore import orders_first
from recollect.verify.explore.orders_first import case_for
from recollect.verify.matrix.selection import VerifyRequest

SUITES = '''
import json
import redis.asyncio as redis
from recollect.pytest_plugin import MemoryStoreSuite


class OneValue:
    """Reads the list, adds to it, writes it back."""

    def __init__(self, url):
        self.client = redis.Redis.from_url(url)

    async def append_message(self, session, message):
        known = json.loads(await self.client.get(session) or "[]")
        await self.client.set(session, json.dumps([*known, message]))

    async def get_messages(self, session):
        return json.loads(await self.client.get(session) or "[]")


class OneCommand(OneValue):
    async def append_message(self, session, message):
        await self.client.rpush(session, json.dumps(message))

    async def get_messages(self, session):
        return [json.loads(raw) for raw in await self.client.lrange(session, 0, -1)]


class TestStore(MemoryStoreSuite):
    engine, policy, fault = "redis", "none", ("none", "restart")

    @staticmethod
    def factory(endpoint):
        return {store}(endpoint.url)
'''


def run(project: pytest.Pytester, store: str) -> tuple[str, str]:
    project.makepyfile(test_orders=SUITES.replace("{store}", store))
    result = project.runpytest_inprocess("-v", "-rs", "-p", "no:xdist", "-k", "interleavings")
    text = result.stdout.str()
    ((name, outcome),) = re.findall(r"test_orders.py::(\S+) (PASSED|FAILED|SKIPPED)", text)
    assert name == "TestStore::test_survives[none-none-interleavings]"
    return outcome, text


def test_a_race_fails_with_its_order(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders_first, "SECONDS_MAX", 120.0)  # it ends when it is found
    monkeypatch.setattr(orders_first, "GRACE_S", 120.0)
    outcome, text = run(project, "OneValue")
    assert outcome == "FAILED", text
    assert "2 tasks of one process: a | a" in text
    assert "task A" in text
    assert re.search(r"(lost-update|dropped) \(silent\), confirmed 3 of 3", text), text
    assert "recollect replay" in text


def test_a_store_without_one_passes(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders_first, "SECONDS_MAX", 3.0)
    outcome, text = run(project, "OneCommand")
    slow = outcome == "SKIPPED" and "orders of events" in text
    assert slow or outcome == "PASSED", text


@pytest.mark.parametrize(
    ("asked", "has"),
    [
        ({}, True),
        ({"faults": ("none", "restart")}, True),
        ({"faults": ("restart",)}, False),
        ({"faults": ("none@one-writer",)}, False),
        ({"writers": 1}, False),
        ({"workloads": ("turns",)}, False),
        ({"engine": "chroma"}, False),
        ({"engine": "valkey"}, True),
    ],
    ids=str,
)
def test_which_suites_have_it(asked: dict[str, object], has: bool) -> None:
    request = VerifyRequest(**{"targets": ("app:make",), "engine": "redis", **asked})  # type: ignore[arg-type]
    assert (case_for(request, "app:make") is not None) == has
    assert case_for(VerifyRequest(targets=("redis",)), "redis") is None


EXPIRING = (
    SUITES.partition("class OneCommand")[0]
    + """
class TestStore(MemoryStoreSuite):
    engine, policy, fault, retain = "redis", "none", ("none", "clock-forward"), "7d"

    @staticmethod
    def factory(endpoint):
        return OneValue(endpoint.url)
"""
)


def test_a_race_does_not_hide_what_a_fault_shows(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writers get sessions of their own in the tests that come after it."""
    monkeypatch.setattr(orders_first, "SECONDS_MAX", 120.0)
    monkeypatch.setattr(orders_first, "GRACE_S", 120.0)
    project.makepyfile(test_expiring=EXPIRING.replace("[*known, message])", "[*known, message]), ex=300"))
    wanted = "interleavings or clock-forward"
    result = project.runpytest_inprocess("-v", "-p", "no:xdist", "-k", wanted)
    text = result.stdout.str()
    assert "2 failed" in text, text
    assert "expired-early (silent), confirmed 3 of 3" in text
    assert "where it is told" not in text
