"""Random calls on each store and on a plain dictionary: the answers are the same."""

from __future__ import annotations

import asyncio
import itertools

from tools.attack.assault import Assault
from tools.attack.stores import ENGINES, address_of

from recollect import Conflict, Message, Receipt, Store, open_store

TIMES = 3_000


class Model:
    """What a store is, in a dozen lines."""

    def __init__(self) -> None:
        self.given: dict[str, int] = {}
        self.kept: dict[str, list[tuple[int, str]]] = {}
        self.turns: dict[tuple[str, str], tuple[int, int]] = {}

    def append(
        self, session: str, texts: list[str], turn: str | None, expect: int | None
    ) -> tuple[int, int] | None:
        """First and last sequence, or None for a conflict."""
        if turn is not None and (session, turn) in self.turns:
            return self.turns[session, turn]
        last = self.given.get(session, 0)
        if expect is not None and expect != last:
            return None
        numbers = range(last + 1, last + 1 + len(texts))
        self.kept.setdefault(session, []).extend(zip(numbers, texts, strict=True))
        self.given[session] = numbers[-1]
        if turn is not None:
            self.turns[session, turn] = numbers[0], numbers[-1]
        return numbers[0], numbers[-1]


def attack(assault: Assault) -> None:
    for name in ENGINES:
        with address_of(name) as url:
            asyncio.run(_one(assault, name, url, assault.limit or TIMES))


async def _one(assault: Assault, name: str, url: str, times: int) -> None:
    model, fresh = Model(), itertools.count()
    async with open_store(url) as store:
        for _ in range(times):
            if not assault.goes_on():
                return
            session = f"s{assault.rng.randrange(4)}"
            if assault.rng.random() < 0.6:
                await _append(assault, name, store, model, session, fresh)
            else:
                await _read(assault, name, store, model, session)
            assault.count("calls")


async def _append(
    assault: Assault, name: str, store: Store, model: Model, session: str, fresh: itertools.count[int]
) -> None:
    rng, number = assault.rng, next(fresh)
    again = [turn for owner, turn in model.turns if owner == session][-20:]
    turn = rng.choice([None, f"t{number}", *again[:1]]) if rng.random() < 0.7 else None
    texts = [f"{turn or number}-{part}" for part in range(2)]
    expect = rng.choice([None, None, model.given.get(session, 0), number])
    wanted = model.append(session, texts, turn, expect)
    try:
        got: Receipt | None = await store.append(
            session, [Message("user", text) for text in texts], turn=turn, expect=expect
        )
    except Conflict:
        got = None
    told = None if got is None else (got.first, got.last)
    assault.expect(told == wanted, f"{name}: append to {session} gave {told}, the model {wanted}")


async def _read(assault: Assault, name: str, store: Store, model: Model, session: str) -> None:
    rng, kept = assault.rng, model.kept.get(session, [])
    last, after = rng.choice([None, 0, 1, 7, 10_000]), rng.choice([None, 0, 3, model.given.get(session, 0)])
    if rng.random() < 0.02:
        await store.forget(session)
        kept.clear()
        model.turns = {key: value for key, value in model.turns.items() if key[0] != session}
    wanted = [entry for entry in kept if entry[0] > (after or 0)]
    wanted = wanted if last is None else wanted[len(wanted) - min(last, len(wanted)) :]
    found = [
        (item.sequence, getattr(item.message, "text", "?"))
        for item in await store.history(session, last=last, after=after)
    ]
    assault.expect(found == wanted, f"{name}: history({session}, {last=}, {after=}) differs from the model")
