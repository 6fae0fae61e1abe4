"""What a store keeps in memory is bounded, however many sessions it has met and however long their ids."""

import gc
import tracemalloc

from recollect import Message, open_store
from tests.contract.conftest import Place
from tests.contract.reading import texts

IDS = 60
ID_CHARACTERS = 33_000  # 99,000 bytes, and three times as many once escaped
KEPT_BYTES_MAX = 3_000_000


async def test_long_ids_are_not_kept(place: Place, session: str) -> None:
    def long_id(number: int) -> str:
        return f"{session}-{number}-".ljust(ID_CHARACTERS, "日")

    async with open_store(place.url) as store:
        await store.append(long_id(0), [Message("user", "0")])
        tracemalloc.start()
        try:
            for number in range(IDS):
                await store.append(long_id(number), [Message("user", "x")])
                assert await texts(store, long_id(number), last=1) == ["x"]
                await store.state(long_id(number))
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < KEPT_BYTES_MAX
        assert len(await texts(store, long_id(0))) == 2


async def test_many_short_ids_are_kept_up_to_a_bound(place: Place, session: str) -> None:
    async with open_store(place.url) as store:
        tracemalloc.start()
        try:
            for number in range(1_000):
                await store.history(f"{session}-{number}-".ljust(400, "日"), last=1)
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 2 * 8 * 1024 * 1024
