"""How many messages a read is asked for when everything is wanted, of a store whose reads have a default limit.

A store may refuse a limit that is too high for it. That is asked of a session without messages, so that what is refused
is the limit, and no record.
"""

from collections.abc import Awaitable, Callable

from recollect.verify.target.outcomes import of_read

UNLIMITED = 10_000_000
MOST = (UNLIMITED, 1_000_000, 100_000, 10_000, 5_000, 2_000, 1_000, 500, 250, 200, 100, 50, 20, 10)
"""What is asked for, one after the other, until something is not refused."""
REFUSALS = (ValueError, AssertionError)
"""What a method raises that refuses what it is given; pydantic's own are ValueErrors."""
NOBODY = "recollect-probe"
"""A session without messages."""


async def most_taken(read: Callable[[int], Awaitable[object]]) -> int:
    """The highest limit that `read` does not refuse. If it fails in other ways, nobody knows, and there is none; unless
    the engine did not answer, which is raised: later it may."""
    for most in MOST:
        try:
            await read(most)
        except REFUSALS:
            continue
        except Exception as error:
            if of_read(error) == "unknown":
                raise
            break
        return most
    return UNLIMITED
