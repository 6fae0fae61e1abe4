"""How many messages reads are asked for: as many as they take, and not decided while nobody answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from recollect.verify.target.interfaces import parameters
from recollect.verify.target.read_limits import (
    UNLIMITED,
    Amounts,
    budgets_in,
    is_budget,
    is_of_pages,
    most_of_both,
    most_taken,
)

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


class BadRequest(Exception):
    pass


async def test_an_error_of_the_store_s_own_is_a_refusal_too() -> None:
    async def read(limit: int) -> object:
        if limit > 100:
            raise BadRequest(f"at most 100, and not {limit:,}")
        return []

    assert await most_taken(read) == 100


async def test_what_is_refused_in_other_words_is_not_the_limit() -> None:
    """The limit is looked at first, and then there is no such session."""
    assert await most_taken(at_most(100, ValueError("no session recollect-probe"))) == 100


async def test_a_budget_is_asked_for_with_a_low_limit_and_a_limit_with_what_the_budget_takes() -> None:
    async def read(most: Amounts) -> object:
        if most.limit > 100 or most.budget > 128_000:
            raise BadRequest("too much")
        return []

    assert await most_of_both(read, limited=True, budgeted=True) == Amounts(100, 100_000)
    assert Amounts(100, 100_000).window(None) == 100
    assert Amounts(1_000, 100_000).window(None) == 400
    assert Amounts(1_000, 100_000).window(50) == 50
    assert Amounts().window(None) is None


@pytest.mark.parametrize("name", ["max_tokens", "token_limit", "max_context_tokens", "max_chars", "tokens"])
def test_what_a_budget_is_called(name: str) -> None:
    assert is_budget(name)


@pytest.mark.parametrize("name", ["page_token", "token", "limit", "max_messages", "charset"])
def test_what_is_no_budget(name: str) -> None:
    assert not is_budget(name)


def test_a_budget_takes_a_number() -> None:
    def read(
        session: str, max_tokens: int = 500, count_tokens: bool = False, token_limit: None = None
    ) -> None: ...

    assert budgets_in(parameters(read)) == ["max_tokens", "token_limit"]


def ours(session: str, last: int | None = None, after: int | None = None) -> None: ...
def by_place(session: str, limit: int = 50, start: int = 0) -> None: ...
def by_cursor(session: str, limit: int = 50, after: str | None = None) -> None: ...
def before(session: str, limit: int = 50, before: str | None = None) -> None: ...


@pytest.mark.parametrize(
    ("read", "found"), [(ours, False), (by_place, True), (by_cursor, True), (before, False)]
)
def test_a_limit_that_is_the_length_of_a_page(read: Callable[..., None], found: bool) -> None:
    assert is_of_pages(parameters(read)) is found


async def test_a_store_that_does_not_know_the_session_is_asked_for_everything() -> None:
    assert await most_taken(at_most(10**9, KeyError("recollect-probe"))) == UNLIMITED
