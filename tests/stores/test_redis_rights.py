"""A user under ACL: what it may not do is said at open, before anything is written."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect import CannotOpen, Message, NotWritten, OutcomeUnknown, SessionState, open_store
from recollect.store import Store
from recollect.stores.redis import rights
from recollect.stores.redis.rights import COMMANDS, OPTIONAL, REQUESTS
from recollect.verify.engines import Engine, Replicated
from tests.contract.reading import texts
from tests.stores.redis_places import BUILDS, address, hands_on, new_prefix, started


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


def said(text: str) -> Message:
    return Message("user", text)


def as_user(engine: Engine, hands: Any, prefix: str, *rules: str) -> str:
    """The address for a new user with these rules."""
    hands.execute_command("ACL", "SETUSER", prefix, "on", ">secret", *rules)
    url = engine.endpoint.socket_url
    assert url is not None
    return f"unix://{prefix}:secret@{url.partition('@')[2]}&prefix={prefix}"


def test_nothing_else_is_sent() -> None:
    """Every command in the package's own code is one of the lists."""
    sent: set[str] = set()
    for source in Path(rights.__file__).parent.glob("*.py"):
        sent |= set(re.findall(r'pack(?:_arguments)?\(\(?"([A-Z]+)"', source.read_text()))
    assert REQUESTS <= sent <= COMMANDS | OPTIONAL
    assert not COMMANDS & OPTIONAL


HANDSHAKE = {"AUTH", "HELLO", "SELECT", "CLIENT"}
"""Sent by the driver when it connects."""


async def everything(url: str) -> None:
    """Every call of a store, on every way that its scripts have."""
    for ttl in (None, timedelta(hours=1), None):
        async with open_store(url, ttl=ttl, refresh="read" if ttl else "append", turns_kept=2) as store:
            for number in range(4):
                for _ in range(2):
                    await store.append("s", [Message("user", "x")], turn=f"{number} {ttl}")
            await store.append(
                "s", [Message("user", "x")] * 3, expect=(await store.history("s"))[-1].sequence
            )
            await store.history("s", last=1)
            await store.history("s", after=1)
            await store.state("s")
            assert [name async for name in store.sessions()] == ["s"]
    async with open_store(url, ttl=timedelta(milliseconds=1)) as store:
        await store.append("short", [Message("user", "x")])
        while await store.state("short") is not SessionState.EXPIRED:
            await asyncio.sleep(0.01)
        assert await store.sweep() == 1
        await store.forget("s")
        await store.forget("nobody")


async def test_the_engine_saw_no_other_command(engine: Engine) -> None:
    """Counted by the engine itself, commands of scripts included."""
    with hands_on(engine) as hands:
        hands.config_resetstat()
        await everything(address(engine))
        counted = {name.split("|")[0].removeprefix("cmdstat_").upper() for name in hands.info("commandstats")}
    assert counted - HANDSHAKE - {"RESET"} <= COMMANDS | OPTIONAL


@pytest.mark.parametrize("command", sorted(OPTIONAL - {"CLUSTER", "WAIT", "WAITAOF"}))
async def test_what_is_optional_may_be_missing(engine: Engine, command: str) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        await everything(as_user(engine, hands, prefix, "~*", "+@all", f"-{command.lower()}"))


@pytest.mark.parametrize("command", sorted(COMMANDS))
async def test_a_missing_command_is_named_at_open(engine: Engine, command: str) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        url = as_user(engine, hands, prefix, "~*", "+@all", f"-{command.lower()}")
        with pytest.raises(
            CannotOpen, match=rf"may not run {command}, .*: ACL SETUSER … \+{command.lower()}$"
        ):
            await open_store(url)
        assert [key for key in hands.keys(f"{prefix}:*") if b":rights:" not in key] == []


async def test_several_missing_commands_are_named_together(engine: Engine) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        url = as_user(engine, hands, prefix, "~*", "+@all", "-zadd", "-hset")
        with pytest.raises(CannotOpen, match=r"HSET, ZADD.*\+hset \+zadd$"):
            await open_store(url)


async def test_keys_that_may_not_be_used_are_named_at_open(engine: Engine) -> None:
    prefix = new_prefix()
    with hands_on(engine) as hands:
        url = as_user(engine, hands, prefix, "~somewhere:*", "+@all")
        with pytest.raises(CannotOpen, match=rf"{prefix}:\*"):
            await open_store(url)


async def test_a_user_with_no_more_than_is_documented_does_everything(engine: Engine) -> None:
    prefix = new_prefix()
    page = (Path(__file__).parents[2] / "docs" / "stores" / "redis.md").read_text()
    documented = re.search(r"needs `~<prefix>:\*` and `([^`]+)`", page)
    assert documented is not None
    rules = documented[1].split()
    assert {rule[1:].upper() for rule in rules} == COMMANDS
    with hands_on(engine) as hands:
        url = as_user(engine, hands, prefix, f"~{prefix}:*", *rules)
        async with open_store(url) as store:
            for _ in range(5):
                assert (await store.append("s", [Message("user", "once")], turn="t")).last == 1
            await store.append("s", [Message("user", "again")], expect=1)
            assert await texts(store, "s") == ["once", "again"]
            assert await texts(store, "s", last=1) == ["again"]
            assert [name async for name in store.sessions()] == ["s"]
            await store.forget("s")
            assert await store.sweep() == 0
        async with open_store(url) as store:
            assert (await store.append("s", [Message("user", "third")])).last == 3
        assert hands.keys(f"{prefix}:rights:*") == []


async def test_waits_that_are_not_allowed_are_named_at_open() -> None:
    """WAITAOF is needed only by a store that waits for fsyncs, WAIT by one that waits for replicas."""
    prefix = new_prefix()
    with started("valkey", "aof-everysec") as engine, hands_on(engine) as hands:
        url = as_user(engine, hands, prefix, "~*", "+@all", "-waitaof", "-wait")
        async with open_store(url) as store:
            await store.append("s", [Message("user", "x")])
        with pytest.raises(CannotOpen, match=r"may not run WAITAOF, .*\+waitaof$"):
            await open_store(url, durability="fsynced")
        assert isinstance(engine, Replicated)
        engine.replica()
        with pytest.raises(CannotOpen, match=r"may not run WAIT, .*\+wait$"):
            await open_store(url, replicas=1)


async def test_rights_taken_from_an_open_store_leave_one_copy_at_most(engine: Engine) -> None:
    """The append that is stopped half-way may be there; every retry used to add another."""
    prefix = new_prefix()
    with hands_on(engine) as hands:
        async with open_store(as_user(engine, hands, prefix, "~*", "+@all")) as store:
            await store.append("s", [Message("user", "before")], turn="t0")
            hands.execute_command("ACL", "SETUSER", prefix, "-zadd")
            with pytest.raises(OutcomeUnknown):
                await store.append("s", [Message("user", "x")], turn="t")
            for _ in range(4):
                with pytest.raises(
                    NotWritten, match=r"may not run ZADD.*\+zadd; safe to retry once the user may do this$"
                ):
                    await store.append("s", [Message("user", "x")], turn="t")
            hands.execute_command("ACL", "SETUSER", prefix, "+zadd")
            for _ in range(2):
                assert (await store.append("s", [Message("user", "x")], turn="t")).last == 3
            assert await texts(store, "s") == ["before", "x", "x"]


CHANGES: dict[str, Callable[[Store], Awaitable[object]]] = {
    "append_many": lambda store: store.append_many({"s": [said("x")], "other": [said("x")]}, turn="t"),
    "replace": lambda store: store.replace("s", [said("x")], turn="t"),
    "retract": lambda store: store.retract("s", 1, turn="t"),
    "fork": lambda store: store.fork("s", "new", turn="t"),
    "annotate": lambda store: store.annotate("s", {"x": 1}, turn="t"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_no_change_is_tried_again_while_rights_are_missing(engine: Engine, name: str) -> None:
    """Whatever the first one left half done, its retries do not add to it."""
    prefix = new_prefix()
    change = CHANGES[name]
    with hands_on(engine) as hands:
        async with open_store(as_user(engine, hands, prefix, "~*", "+@all")) as store:
            await store.append("s", [said("before"), said("and")], turn="t0")
            hands.execute_command("ACL", "SETUSER", prefix, "-zadd")
            with pytest.raises(OutcomeUnknown):
                await change(store)
            position = await store.position("s")
            for _ in range(3):
                with pytest.raises(
                    NotWritten, match=r"may not run ZADD.*\+zadd; safe to retry once the user may do this$"
                ):
                    await change(store)
            with pytest.raises(NotWritten, match="may not run ZADD"):
                await store.forget("s")
            assert await store.position("s") == position
            hands.execute_command("ACL", "SETUSER", prefix, "+zadd")
            await store.append("s", [said("after")], turn="t1")
            assert (await texts(store, "s"))[-1] == "after"
