"""What changes leave in each engine: few rows, whatever was retracted; on every build of Redis; damage is seen."""

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import Conflict, Damaged, Message, Refused, Store, open_store
from recollect.verify.engines import Engine
from tests.contract.reading import texts
from tests.stores.postgres_place import Place
from tests.stores.redis_places import BUILDS, address, free_port, hands_on, new_prefix, started

POPS = 60


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "aof-everysec") as engine:
        yield engine


async def popped(store: Store) -> None:
    """Messages that come and go at the end of a session, one by one, over a few that stay."""
    await store.append("s", [Message("user", str(n)) for n in range(3)])
    for n in range(POPS):
        receipt = await store.append("s", [Message("user", f"gone {n}")])
        await store.retract("s", receipt.last)
        assert await texts(store, "s", last=1) == ["2"]
    await store.append("s", [Message("user", "last")])
    for n in range(POPS):
        await store.annotate("s", {"n": n})
    assert await texts(store, "s", last=2) == ["2", "last"]
    assert await store.position("s") == 3 + 2 * POPS + 1 + POPS


async def test_sqlite_keeps_one_row_for_a_run(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        await popped(store)
    connection = sqlite3.connect(tmp_path / "memory.db")
    assert connection.execute("SELECT count(*) FROM recollect_messages").fetchone() == (6,)
    connection.close()


async def test_postgres_keeps_one_row_for_a_run(place: Place) -> None:
    async with open_store(place.url) as store:
        await popped(store)
    assert await place.direct.fetchval("SELECT count(*) FROM recollect_messages") == 6


async def test_redis_keeps_one_element_for_a_run(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await popped(store)
    with hands_on(engine) as hands:
        assert hands.llen(f"{prefix}:{{ss}}:m") == 6
        counter = hands.hgetall(f"{prefix}:{{ss}}:c")
    assert int(counter[b"last"]) - int(counter[b"hidden"]) == 6
    assert int(counter[b"runs"]) == 2


async def test_a_description_is_of_one_moment(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another task changes while the answer is on its way does not lend its position to what was read."""
    async with open_store(address(engine, new_prefix())) as store:
        await store.annotate("s", {"count": 0})
        asked = store._run  # type: ignore[attr-defined]

        async def overtaken(*arguments: Any) -> Any:
            reply = await asked(*arguments)
            await store.annotate("s", {"count": 1})
            return reply

        monkeypatch.setattr(store, "_run", overtaken)
        found = await store.describe("s")
        assert found.metadata == {"count": 0}
        with pytest.raises(Conflict):
            await store.annotate("s", {"count": 1}, expect=found.position)


@pytest.mark.parametrize("seed", range(3))
async def test_redis_counts_what_its_list_has(engine: Engine, seed: int) -> None:
    """After any changes: the counter's numbers are those of the list, and every verb works on every build."""
    rng, prefix = random.Random(seed), new_prefix()
    async with open_store(address(engine, prefix)) as store:
        live: list[int] = []
        for step in range(60):
            match rng.choice(["append", "append", "retract", "retract", "annotate", "replace", "many"]):
                case "append":
                    receipt = await store.append("s", [Message("user", "x")] * rng.randint(1, 3))
                    live += range(receipt.first, receipt.last + 1)
                case "many":
                    receipt = (
                        await store.append_many({"s": [Message("user", "y")], "t": [Message("user", "z")]})
                    )["s"]
                    live.append(receipt.last)
                case "retract" if live:
                    taken = rng.sample(live, rng.randint(1, len(live)))
                    await store.retract("s", *taken)
                    live = [sequence for sequence in live if sequence not in taken]
                case "annotate":
                    await store.annotate("s", {"step": step})
                case "replace" if rng.random() < 0.3:
                    receipt = await store.replace("s", [Message("user", "r", id="r")] * rng.randint(0, 2))
                    found = await store.history("s")
                    live = [item.sequence for item in found]
            assert [item.sequence for item in await store.history("s")] == live
            count = rng.randint(1, 5)
            assert [item.sequence for item in await store.history("s", last=count)] == live[-count:]
            if not await store.position("s"):
                continue
            with hands_on(engine) as hands:
                counter = hands.hgetall(f"{prefix}:{{ss}}:c")
                elements = hands.lrange(f"{prefix}:{{ss}}:m", 0, -1)
            numbers = {name: int(counter.get(name, 0)) for name in (b"last", b"floor", b"hidden", b"runs")}
            assert len(elements) == numbers[b"last"] - numbers[b"floor"] - numbers[b"hidden"]
            assert sum(b" \0" in element for element in elements) == numbers[b"runs"]
        if await store.position("s"):
            await store.fork("s", "copy")
            assert await store.history("copy") == await store.history("s")


async def test_redis_tells_a_loss_from_a_retraction(engine: Engine) -> None:
    prefix = new_prefix()
    async with open_store(address(engine, prefix)) as store:
        await store.append("s", [Message("user", str(n)) for n in range(1, 7)])
        await store.retract("s", 2, 3)
        with hands_on(engine) as hands:
            element = hands.lindex(f"{prefix}:{{ss}}:m", 3)
            assert element.startswith(b"5 ")
            hands.lrem(f"{prefix}:{{ss}}:m", 1, element)
        found = await store.history("s")
        assert [item.sequence for item in found] == [1, 4, 5, 6]
        assert [isinstance(item.message, Damaged) for item in found] == [False, False, True, False]
        await store.retract("s", 6)
        assert [item.sequence for item in await store.history("s")] == [1, 4, 5]
        with hands_on(engine) as hands:  # the counter is evicted: the list knows enough
            hands.delete(f"{prefix}:{{ss}}:c")
    async with open_store(address(engine, prefix)) as store:
        assert await store.position("s") == 8
        assert (await store.append("s", [Message("user", "on")], expect=8)).last == 9


async def test_sqlite_tells_a_loss_from_a_retraction(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        await store.append("s", [Message("user", str(n)) for n in range(1, 7)])
        await store.retract("s", 2, 3)
        beside = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
        beside.execute("DELETE FROM recollect_messages WHERE place & 4294967295 = 5")
        beside.close()
        found = await store.history("s")
        assert [item.sequence for item in found] == [1, 4, 5, 6]
        assert isinstance(found[2].message, Damaged)


async def test_postgres_tells_a_loss_from_a_retraction(place: Place) -> None:
    async with open_store(place.url) as store:
        await store.append("s", [Message("user", str(n)) for n in range(1, 7)])
        await store.retract("s", 2, 3)
        await place.direct.execute("DELETE FROM recollect_messages WHERE sequence = 5")
        found = await store.history("s")
        assert [item.sequence for item in found] == [1, 4, 5, 6]
        assert isinstance(found[2].message, Damaged)
        await place.direct.execute("UPDATE recollect_messages SET record = '\\x0031' WHERE sequence = 7")
        assert any(isinstance(item.message, Damaged) for item in await store.history("s"))


async def test_a_cluster_s_slots_are_not_spanned(tmp_path: Path) -> None:
    config = tmp_path / "cluster.conf"
    config.write_text(f"cluster-enabled yes\ncluster-port {free_port()}\n")
    with started("redis@7", "custom", config) as engine, hands_on(engine) as hands:
        hands.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        deadline = time.monotonic() + 10
        while b"cluster_state:ok" not in hands.execute_command("CLUSTER", "INFO"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        url = address(engine)
        async with open_store(url) as store:
            await store.append("a", [Message("user", "x")])
            with pytest.raises(Refused, match="different slots"):
                await store.append_many({"a": [Message("user", "x")], "b": [Message("user", "x")]})
            with pytest.raises(Refused, match="different slots"):
                await store.fork("a", "b")
            await store.retract("a", 1)
            await store.replace("a", [Message("user", "y")])
            await store.annotate("a", {"n": 1})
            assert await texts(store, "a") == ["y"]
            async with open_store(url) as other:
                await other.append("a", [Message("user", "z")])
                await store.forget("a", erase=True)
                assert await other.position("a") == 0
