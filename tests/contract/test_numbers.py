"""Any integer may be given; none locks, misleads or breaks a store, and all stores answer alike."""

from datetime import timedelta
from typing import Any

import pytest

from recollect import Conflict, Message, Refused, Store, open_store
from tests.contract.conftest import Place
from tests.contract.reading import texts

LARGE = [2**31, 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 2**70, 10**400, 10**5000]


@pytest.mark.parametrize("expect", LARGE, ids=lambda number: f"{number.bit_length()}bits")
async def test_an_expectation_that_no_session_meets_is_a_conflict(
    store: Store, session: str, expect: int
) -> None:
    for last in (0, 1):
        with pytest.raises(Conflict, match="expected last sequence") as caught:
            await store.append(session, [Message("user", "never")], turn=f"t{last}", expect=expect)
        assert (caught.value.expected, caught.value.actual) == (expect, last)
        await store.append(session, [Message("user", "kept")], expect=last)
    assert await texts(store, session) == ["kept", "kept"]


@pytest.mark.parametrize("number", LARGE, ids=lambda number: f"{number.bit_length()}bits")
async def test_a_window_may_begin_and_end_anywhere(store: Store, session: str, number: int) -> None:
    assert await store.history(session, after=number) == []
    for text in "abc":
        await store.append(session, [Message("user", text)])
    assert await store.history(session, after=number) == []
    assert await store.history(session, after=number, last=number) == []
    assert await texts(store, session, last=number) == ["a", "b", "c"]
    assert await texts(store, session, last=number, after=1) == ["b", "c"]
    await store.append(session, [Message("user", "d")])
    assert await texts(store, session, after=3) == ["d"]


NO_NUMBERS = [-1, -(2**63), -(2**63) - 1, -(10**5000), True, 1.0, "1"]


@pytest.mark.parametrize("number", NO_NUMBERS, ids=lambda value: f"{type(value).__name__}")
async def test_what_is_no_number_of_at_least_0_is_refused(store: Store, session: str, number: Any) -> None:
    with pytest.raises(Refused, match="expect"):
        await store.append(session, [Message("user", "never")], expect=number)
    with pytest.raises(Refused, match="after"):
        await store.history(session, after=number)
    with pytest.raises(Refused, match="last"):
        await store.history(session, last=number)
    assert await store.history(session) == []


async def test_the_largest_options_that_are_taken_work(place: Place, session: str) -> None:
    options: dict[str, Any] = {
        "turns_kept": 1_000_000_000,
        "timeout_s": 1_000_000,
        "pool_size": 100_000,
        "ttl": timedelta(days=365_000),
    }
    async with open_store(place.url, **options) as store:
        for _ in range(2):
            receipt = await store.append(session, [Message("user", "kept")], turn="t")
            assert (receipt.first, receipt.last) == (1, 1)
        assert await texts(store, session) == ["kept"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("turns_kept", 2**31),
        ("turns_kept", 2**63),
        ("replicas", 2**31),
        ("pool_size", 2**63),
        ("timeout_s", float("inf")),
        ("timeout_s", float("nan")),
        ("ttl", timedelta.max),
    ],
)
def test_options_that_no_engine_could_hold_are_refused(name: str, value: Any) -> None:
    with pytest.raises(Refused, match=name):
        open_store("sqlite:///never.db", **{name: value})
