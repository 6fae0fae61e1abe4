"""Writers for an audit to run beside: every verb of the contract, at random, in threads with their own event loops."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recollect import Conflict, NotFound, Refused, Store, open_store
from tests.audit.memories import said


async def change(store: Store, random_: random.Random, session: str) -> None:
    """One change of the contract. That one finds nothing to change, or was overtaken, is fine."""
    verb = random_.choices(
        ("append", "turn", "retract", "replace", "annotate", "fork", "forget", "erase", "many"),
        (8, 8, 8, 1, 2, 1, 1, 0.1, 2),
    )[0]
    words = said(*("word" * random_.randint(1, 5) for _ in range(random_.randint(1, 5))))
    if verb == "append":
        await store.append(session, words)
    elif verb == "turn":
        await store.append(session, words, turn=f"turn-{random_.randint(0, 10**9)}")
    elif verb == "retract":
        there = [item.sequence for item in await store.history(session)]
        if there:
            await store.retract(session, *random_.sample(there, random_.randint(1, min(3, len(there)))))
    elif verb == "replace":
        await store.replace(session, words if random_.random() < 0.7 else [])
    elif verb == "annotate":
        await store.annotate(session, {"number": random_.random()}, turn=f"note-{random_.random()}")
    elif verb == "fork":
        await store.fork(session, f"fork-{random_.random()}", upto=random_.choice([None, 2, 7]))
    elif verb == "many":
        await store.append_many({session: words, "shared": words}, turn=f"many-{random_.random()}")
    else:
        await store.forget(session, erase=verb == "erase")


async def changes(store: Store, random_: random.Random, sessions: list[str], count: int) -> None:
    for _ in range(count):
        try:
            await change(store, random_, random_.choice(sessions))
        except (Conflict, NotFound, Refused):
            continue


@contextmanager
def writing(url: str, seed: int, count: int) -> Iterator[Callable[[], bool]]:
    """Two writers at work, for some changes each; what is given says whether they still are. Their errors are raised
    at the end of the block."""
    errors: list[BaseException] = []

    async def write(number: int) -> None:
        random_ = random.Random(f"{seed}-{number}")
        async with open_store(url, timeout_s=60) as store:
            await changes(store, random_, ["one", "two", f"own-{number}"], count)

    def run(number: int) -> None:
        try:
            asyncio.run(write(number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: any(thread.is_alive() for thread in threads)
    finally:
        for thread in threads:
            thread.join(timeout=60)
    if errors:
        raise errors[0]
