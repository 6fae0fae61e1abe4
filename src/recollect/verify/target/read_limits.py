"""How much a read is asked for when everything is wanted, of a store whose reads have a limit or a budget.

A store may refuse what is too much for it. That is asked of a session without messages, so that what is refused is the
limit, and no record. Some stores also refuse to read a session that does not exist: what is refused in the same words,
however little is asked for, is no limit.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from recollect.verify.target.outcomes import of_read

LIMITS = ("last", "limit", "n", "k", "count", "last_n", "max_messages")
"""What the parameter of a read is called that says how many messages are wanted."""
PAGED_BY = frozenset(
    {
        "offset",
        "skip",
        "start",
        "page",
        "page_number",
        "cursor",
        "page_token",
        "after_id",
        "since_id",
        "start_after",
    }
)
"""What there is beside a limit that is the length of a page. Pages are counted from the oldest."""
UNLIMITED = 10_000_000
MOST = (UNLIMITED, 1_000_000, 100_000, 10_000, 5_000, 2_000, 1_000, 500, 250, 200, 100, 50, 20, 10)
"""What is asked for, one after the other, until something is not refused."""
BUDGET_MOST = (UNLIMITED, 1_000_000, 500_000, 200_000, 100_000, 32_000, 16_000, 8_000, 4_000, 2_000, 1_000)
PER_MESSAGE = 250
"""So much of a budget a message may take, whatever it counts."""
NOBODY = "recollect-probe"
"""A session without messages."""

_AMOUNTS = frozenset({"tokens", "chars", "characters"})
_BOUNDS = frozenset({"max", "limit", "budget"})


def is_budget(name: str) -> bool:
    """Whether a parameter of this name says how long all messages together may be: `max_tokens`, `token_limit`."""
    words = set(name.split("_"))
    return bool(words & _AMOUNTS) or ("token" in words and bool(words & _BOUNDS))


def wants_number(parameter: inspect.Parameter) -> bool:
    """Whether it has to be given a number, or is one by default."""
    default = parameter.default
    return default is parameter.empty or (isinstance(default, int) and not isinstance(default, bool))


def budgets_in(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Those that are budgets, and take a number."""
    return [
        name
        for name, one in parameters.items()
        if is_budget(name) and (one.default is None or wants_number(one))
    ]


def is_of_pages(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a limit beside these parameters is the length of a page. `after` is our own cursor beside `last`."""
    return not PAGED_BY.isdisjoint(parameters) or ("after" in parameters and "last" not in parameters)


class Amounts(NamedTuple):
    """How much reads are asked for."""

    limit: int = UNLIMITED
    budget: int = UNLIMITED

    def window(self, declared: int | None) -> int | None:
        """So many of the latest messages a read surely gives, of a store that says that it keeps so many; None: all."""
        by_budget = UNLIMITED if self.budget == UNLIMITED else self.budget // PER_MESSAGE
        window = min(self.limit, by_budget, declared or UNLIMITED)
        return None if window == UNLIMITED else window


async def most_of_both(
    read: Callable[[Amounts], Awaitable[object]], *, limited: bool, budgeted: bool
) -> Amounts:
    """The highest that `read` does not refuse of what it has: a limit, a budget."""
    budget = limit = UNLIMITED
    if budgeted:
        budget = await most_taken(lambda most: read(Amounts(MOST[-1], most)), BUDGET_MOST)
    if limited:
        limit = await most_taken(lambda most: read(Amounts(most, budget)))
    return Amounts(limit, budget)


async def most_taken(read: Callable[[int], Awaitable[object]], amounts: tuple[int, ...] = MOST) -> int:
    """The highest of the amounts that `read` does not refuse. If it refuses all of them, nobody knows, and there is no
    limit; if the engine did not answer, that is raised: later it may."""
    refusal = ""
    for most in amounts:
        try:
            await read(most)
        except Exception as error:
            if of_read(error) == "unknown":
                raise
            refusal = refusal or _in_words(error)
            if _in_words(error) != refusal:
                return most  # it is something else that is refused now
        else:
            return most
    return UNLIMITED


def _in_words(error: Exception) -> str:
    """Without numbers: a refusal may repeat what was asked for."""
    return re.sub(r"\d[\d,._]*", "", f"{type(error).__name__} {error}")
