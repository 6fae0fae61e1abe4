"""A primary that sentinels name: it dies, another one takes over, and the store goes on with that one."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from recollect import (
    CannotOpen,
    CredentialsRefused,
    Durability,
    Message,
    NotWritten,
    OutcomeUnknown,
    Refused,
    Store,
    open_store,
)
from recollect.audit.auditing import audit
from recollect.doctor import examine
from recollect.doctor.diagnosis import LoginRefused
from recollect.stores.redis import sentinel
from recollect.stores.redis.address import parse_address
from recollect.verify import engines
from recollect.verify.engines.redis_sentinel import RedisSentinelEngine
from recollect.verify.providers.server_address import named_primary
from tests.stores.redis_places import new_prefix, started

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def group() -> Iterator[RedisSentinelEngine]:
    with started("redis-sentinel", "aof-always") as engine:
        assert isinstance(engine, RedisSentinelEngine)
        yield engine


async def listed(store: Store) -> list[str]:
    return [name async for name in store.sessions()]


async def test_another_primary_takes_over(group: RedisSentinelEngine) -> None:
    url, done = f"{group.endpoint.url}?prefix={new_prefix()}", asyncio.Event()
    acknowledged: list[str] = []
    async with open_store(url, timeout_s=DEADLINE_S, durability="fsynced", replicas=1) as store:

        async def write() -> None:
            while not done.is_set():
                text = str(len(acknowledged))
                try:
                    receipt = await store.append("s", [Message("user", text)], turn=text)
                except (NotWritten, OutcomeUnknown):
                    continue
                assert receipt.replicas == 1
                acknowledged.append(text)

        writing = asyncio.create_task(write())
        try:
            while len(acknowledged) < 20:
                await asyncio.sleep(0.01)
            old = group.primary()
            old.kill()
            listing, sweeping = asyncio.create_task(listed(store)), asyncio.create_task(store.sweep())
            await asyncio.to_thread(group.await_successor, old)
            assert await listing == ["s"]
            assert await sweeping == 0
            before = len(acknowledged)
            while len(acknowledged) < before + 20:
                assert not writing.done()
                await asyncio.sleep(0.01)
        finally:
            done.set()
            await writing
        found = [item.message for item in await store.history("s")]
        assert [message.text for message in found if isinstance(message, Message)] == acknowledged
        assert await listed(store) == ["s"]
    await asyncio.to_thread(old.start)
    await asyncio.to_thread(group.await_ready, DEADLINE_S)


async def test_a_primary_that_was_replaced_and_its_missing_copy_count_no_longer(
    group: RedisSentinelEngine,
) -> None:
    """For receipts the one, for reads the other."""
    url, old = f"{group.endpoint.url}?prefix={new_prefix()}", group.primary()
    old.ask("CONFIG", "SET", "appendfsync", "everysec")
    async with (
        open_store(url, timeout_s=DEADLINE_S) as store,
        open_store(url, timeout_s=DEADLINE_S, replicas=2) as careful,
    ):
        assert (await store.append("s", [Message("user", "x")])).durability is Durability.BUFFERED
        await careful.append("s", [Message("user", "x")])
        old.kill()
        await asyncio.to_thread(group.await_successor, old)
        assert len(await careful.history("s")) == 2
        with suppress(OutcomeUnknown):
            await store.append("s", [Message("user", "x")], turn="t")
        assert (await store.append("s", [Message("user", "x")], turn="t")).durability is Durability.FSYNCED
        assert store.durability is Durability.FSYNCED
    await asyncio.to_thread(old.start)
    await asyncio.to_thread(group.await_ready, DEADLINE_S)


async def test_a_service_that_nobody_watches_is_said_at_once(group: RedisSentinelEngine) -> None:
    with pytest.raises(CannotOpen, match="asked for 'others': it watches no such service"):
        await open_store(group.endpoint.url.replace("/memory", "/others"))


async def test_a_sentinel_is_no_store_and_says_what_to_open(group: RedisSentinelEngine) -> None:
    url = group.endpoint.nodes[0]
    opened = url.replace("redis://", "redis+sentinel://") + "/SERVICE"
    for given in (url, url.replace("redis://", "redis+cluster://")):
        with pytest.raises(CannotOpen) as refusal:
            await open_store(given, timeout_s=1000)
        assert str(refusal.value).endswith(f"open the service it watches: {opened}")
    with pytest.raises(CannotOpen, match="is a Sentinel, which keeps no data"):
        await audit(url)
    with pytest.raises(
        engines.EngineError, match=r"is a Sentinel, which keeps no data; give redis\+sentinel://"
    ):
        await asyncio.to_thread(engines.attach(url).start)
    assert [symptom.name for symptom in (await examine(url)).findings] == ["is-a-sentinel"]


async def test_sentinels_with_a_password_get_the_servers(group: RedisSentinelEngine) -> None:
    url = f"{group.endpoint.url}?prefix={new_prefix()}"
    wrong = url.replace(f"{group.endpoint.password}@", "mistaken@")
    for one in group.sentinels:
        one.ask("ACL", "SETUSER", "default", "off")
    try:
        async with open_store(url) as store:
            await store.append("s", [Message("user", "hello")])
        assert (await audit(url)).sessions == 1
        assert (await examine(url)).settings["sentinels-that-answer"] == "3"
        assert named_primary(url).port == group.primary().seen
        for given in (wrong, url.partition("://")[0] + "://" + url.partition("@")[2]):
            with pytest.raises(CredentialsRefused, match=r"the sentinel redis://127.0.0.1:.* refused"):
                await open_store(given, timeout_s=1000)
            with pytest.raises(
                LoginRefused, match=r"the sentinel redis://127.0.0.1:\d+: (NOAUTH|WRONGPASS) "
            ):
                await examine(given)
    finally:
        for one in group.sentinels:
            one.ask("ACL", "SETUSER", "default", "on")


async def test_sentinels_may_have_a_password_of_their_own(group: RedisSentinelEngine) -> None:
    """Never shown, and not given to those that ask for none."""
    url = f"{group.endpoint.url}/7?prefix={new_prefix()}&sentinel_password=their+word"
    for locked in (True, False):
        for one in group.sentinels:
            one.ask("ACL", "SETUSER", "default", *(["resetpass", ">their word"] if locked else ["nopass"]))
        async with open_store(url) as store:
            await store.append("s", [Message("user", "hello")])
        assert (await audit(url)).sessions == 1
        assert (await examine(url)).settings["sentinels-that-answer"] == "3"
        attached = engines.attach(url)
        endpoint = await asyncio.to_thread(attached.start)
        assert all("their%20word@" in node for node in endpoint.nodes)
        assert "their" not in repr(endpoint)
        await asyncio.to_thread(attached.stop)
        if locked:
            with pytest.raises(CredentialsRefused, match=r"password than the servers: \?sentinel_password="):
                await open_store(url.replace("their+word", "another-word"), timeout_s=1000)
    assert "their" not in repr(parse_address(url))
    with pytest.raises(Refused, match="give sentinel_password too"):
        parse_address("redis+sentinel://a/memory?sentinel_username=me")
    with pytest.raises(Refused, match="sentinel_password: not an option"):
        parse_address("redis+cluster://a?sentinel_password=x")


async def test_an_old_primary_that_comes_back_is_not_written_to(
    group: RedisSentinelEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It calls itself a primary until a sentinel tells it otherwise, and the store still has its address."""
    monkeypatch.setattr(sentinel, "LOOK_S", 3600.0)
    prefix = new_prefix()
    async with open_store(f"{group.endpoint.url}?prefix={prefix}", timeout_s=DEADLINE_S) as store:
        await store.append("s", [Message("user", "before")])
        old = group.primary()
        old.kill()
        await asyncio.to_thread(group.await_successor, old)
        await asyncio.to_thread(old.start)
        old.ask("REPLICAOF", "NO", "ONE")
        for _ in range(2):  # the first one may find the connection that broke
            with suppress(OutcomeUnknown):
                await store.append("s", [Message("user", "after")], turn="after")
        new = group.primary()
        keys = new.ask("KEYS", f"{prefix}*")
        assert isinstance(keys, list)
        lists = [key for key in map(str, keys) if new.ask("TYPE", key) == "list"]
        assert [new.ask("LLEN", key) for key in lists] == [2]
