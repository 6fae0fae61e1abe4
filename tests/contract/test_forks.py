"""A store belongs to the process that opened it: a fork's copy is refused, and the parent's goes on unharmed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from recollect import Message, RecollectError, Refused, Store, open_store
from recollect.owner import FORKED
from tests.contract.conftest import Place
from tests.contract.reading import texts
from tests.contract.test_sync import in_a_fork


async def _first(names: AsyncIterator[str]) -> None:
    async for _ in names:
        return


USES: dict[str, Callable[[Store, str], object]] = {
    "append": lambda store, session: store.append(session, [Message("user", "from the fork")]),
    "history": lambda store, session: store.history(session),
    "last": lambda store, session: store.history(session, last=1),
    "after": lambda store, session: store.history(session, after=1),
    "forget": lambda store, session: store.forget(session),
    "state": lambda store, session: store.state(session),
    "sweep": lambda store, session: store.sweep(),
    "sessions": lambda store, session: _first(store.sessions()),
}


async def test_a_fork_s_copy_is_refused_by_every_method(place: Place, session: str) -> None:
    async with open_store(place.url) as store:
        await store.append(session, [Message("user", "before")])

        async def use_it() -> None:
            for name, use in USES.items():
                with pytest.raises(Refused) as caught:
                    await use(store, session)  # type: ignore[misc]
                assert str(caught.value) == FORKED, name
            await store.close()

        assert in_a_fork(lambda: asyncio.run(use_it())) == 0
        await store.append(session, [Message("user", "after")])
        assert await texts(store, session) == ["before", "after"]


async def test_parent_and_forks_together_lose_nothing_that_was_acknowledged(
    place: Place, session: str
) -> None:
    """Each fork tries the parent's copy, and then does what the refusal says: it opens its own."""
    async with open_store(place.url) as store:
        await store.append(session, [Message("user", "first")])

        async def write(number: int) -> None:
            refused = 0
            for _ in range(10):
                try:
                    await store.append(session, [Message("user", "by the copy")])
                except RecollectError:
                    refused += 1
            assert refused == 10
            async with open_store(place.url) as own:
                for turn in range(10):
                    await own.append(session, [Message("user", f"{number}:{turn}")])

        def in_the_fork(number: int) -> None:
            asyncio.run(write(number))

        for number in range(3):
            append = asyncio.create_task(store.append(session, [Message("user", f"parent:{number}")]))
            await asyncio.sleep(0)  # under way while the fork is made
            assert in_a_fork(partial(in_the_fork, number)) == 0
            await append
        expected = {
            "first",
            *(f"parent:{n}" for n in range(3)),
            *(f"{n}:{t}" for n in range(3) for t in range(10)),
        }
        found = await texts(store, session)
        assert len(found) == len(expected)
        assert set(found) == expected
