"""How many messages reads are asked for: as many as they take, and not decided while nobody answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from recollect.verify.target.read_limits import UNLIMITED, most_taken

Read = Callable[[int], Awaitable[object]]


def at_most(most: int, error: Exception | None = None) -> Read:
    async def read(limit: int) -> object:
        if limit > most:
            raise ValueError(f"limit must be from 1 to {most}, not {limit}")
        if error is not None:
            raise error
        return []

    return read


@pytest.mark.parametrize(("most", "found"), [(100, 100), (64, 50), (3_000, 2_000), (10**9, UNLIMITED)])
async def test_the_highest_that_is_not_refused(most: int, found: int) -> None:
    assert await most_taken(at_most(most)) == found


async def test_while_nobody_answers_it_is_not_known() -> None:
    with pytest.raises(ConnectionError):
        await most_taken(at_most(100, ConnectionRefusedError("nobody is there")))


async def test_a_store_that_does_not_know_the_session_is_asked_for_everything() -> None:
    assert await most_taken(at_most(10**9, KeyError("recollect-probe"))) == UNLIMITED
