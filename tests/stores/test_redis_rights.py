"""A user under ACL: what it may not do is said at open, before anything is written."""

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from recollect import CannotOpen, Message, open_store
from recollect.stores.redis.rights import COMMANDS
from recollect.verify.engines import Engine
from tests.contract.reading import texts
from tests.stores.redis_places import BUILDS, hands_on, new_prefix, started


@pytest.fixture(scope="module", params=BUILDS)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with started(request.param, "none") as running:
        yield running


def as_user(engine: Engine, hands: Any, prefix: str, *rules: str) -> str:
    """The address for a new user with these rules."""
    hands.execute_command("ACL", "SETUSER", prefix, "on", ">secret", *rules)
    url = engine.endpoint.socket_url
    assert url is not None
    return f"unix://{prefix}:secret@{url.partition('@')[2]}&prefix={prefix}"


def test_every_command_of_the_scripts_is_tried() -> None:
    used: set[str] = set()
    for script in resources.files("recollect.stores.redis").joinpath("lua").iterdir():
        used |= set(re.findall(r"redis\.p?call\('(\w+)'", script.read_text()))
    assert used
    assert used <= COMMANDS


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
