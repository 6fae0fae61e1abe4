"""The three stores on engines of their own, for attacks on what they promise."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.attack.assault import Assault

from recollect import Message, RecollectError, Store
from recollect.verify import engines
from recollect.verify.engines import Engine

ENGINES = {"sqlite": None, "redis": ("redis", "aof-always"), "postgres": ("postgres", "default")}


@contextmanager
def engine_of(name: str) -> Iterator[Engine]:
    spec, policy = ENGINES[name] or ("", "")
    engine = engines.create(spec, policy)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def address_of(name: str) -> Iterator[str]:
    """Where a store of this name can be opened, on something that is there for it alone."""
    if ENGINES[name] is None:
        with tempfile.TemporaryDirectory(prefix="recollect-attack-") as folder:
            yield f"sqlite:///{Path(folder) / 'memory.db'}"
        return
    with engine_of(name) as engine:
        yield engine.endpoint.url


async def stored_once(store: Store, session: str, text: str, turn: str, tries: int = 500) -> bool:
    """Appends, and tries again under the same turn id until it is acknowledged."""
    for _ in range(tries):
        try:
            await store.append(session, [Message("user", text)], turn=turn)
        except RecollectError:
            await asyncio.sleep(0.01)
            continue
        return True
    return False


async def compare(assault: Assault, store: Store, where: str, acknowledged: dict[str, list[str]]) -> None:
    """Every acknowledged text is there, once, in its own session; of one writer, in order."""
    for session, texts in acknowledged.items():
        found = [getattr(item.message, "text", "?") for item in await store.history(session)]
        twice = [text for text, count in Counter(found).items() if count > 1]
        missing = set(texts) - set(found)
        assault.expect(
            not missing, f"{where}: {len(missing)} acknowledged messages are missing from {session}"
        )
        assault.expect(not twice, f"{where}: {len(twice)} messages are there twice in {session}")
        known = set(texts)
        order = [text for text in found if text in known]
        assault.expect(bool(missing) or order == texts, f"{where}: {session} is out of order")
