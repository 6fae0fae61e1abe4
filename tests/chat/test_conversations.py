"""Conversations in a store of their own, on any engine, and what is remembered of them beside it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from recollect import Refused, open_store
from recollect.chat.app import create_app
from recollect.chat.service import PROBED, ChatService
from recollect.chat.settings import ChatSettings, checked
from recollect.composite import conversation_id
from tests.stores.redis_places import new_prefix, started


@pytest.fixture(scope="module", params=["redis", "redis-cluster", "redis-sentinel", "sqlite"])
def conversations(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('elsewhere')}/folder/conversations.db"
        return
    with started(request.param, "aof-always") as engine:
        yield f"{engine.endpoint.url}?prefix={new_prefix()}"


@pytest.fixture
def settings(tmp_path: Path, conversations: str) -> ChatSettings:
    memory = f"sqlite:///{tmp_path}/data/memory.db"
    return ChatSettings(memory=memory, conversations=conversations, index="none", allow_ephemeral=True)


@asynccontextmanager
async def served(settings: ChatSettings) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(checked(settings))
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1"
        ) as client:
            yield client


async def test_both_are_there_after_a_restart(settings: ChatSettings) -> None:
    body = {"user": "xiao", "session": "s", "message": "my name is Xiao Li", "turn": "t1"}
    async with served(settings) as client:
        first = (await client.post("/chat", json=body)).json()
    async with served(settings) as client:
        again = (await client.post("/chat", json=body)).json()
        assert again["receipt"] == first["receipt"]
        assert again["engine"]["store"] == settings.store_url.partition(":")[0]
        asked = {"user": "xiao", "session": "other", "message": "what is my name?"}
        assert "Xiao Li" in (await client.post("/chat", json=asked)).json()["reply"]
        health = await client.get("/health")
        assert health.status_code == 200, health.text
        listed = (await client.get("/conversations", params={"user": "xiao"})).json()
        assert {each["session"] for each in listed} == {"s", "other"}
    async with open_store(settings.store_url) as store:
        kept = await store.history(conversation_id("xiao", "s"))
        assert len(kept) == 2
        assert (await store.describe(PROBED)).metadata.keys() == {"probed"}
        assert await store.history(PROBED) == []
    async with served(settings) as client:
        forgotten = (await client.delete("/everything", params={"user": "xiao"})).json()
        assert forgotten["conversations"] == 2
        assert (await client.get("/conversations", params={"user": "xiao"})).json() == []


async def test_a_store_that_takes_no_writes_is_not_healthy(
    settings: ChatSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await ChatService.open(settings)
    try:
        assert (await service.health()).ok
    finally:
        await service.close()
    service = await ChatService.open(settings)
    try:

        async def refuse(*_: object, **__: object) -> None:
            raise Refused("no writes today")

        monkeypatch.setattr(service.store, "annotate", refuse)
        health = await service.health()
        assert not health.ok
        assert health.error == "no writes today"
    finally:
        await service.close()


def test_memories_need_a_database_and_conversations_do_not() -> None:
    with pytest.raises(Refused, match="--conversations"):
        checked(ChatSettings(memory="redis://127.0.0.1"))
    settings = ChatSettings(conversations="redis://:secret-word@127.0.0.1")
    checked(settings)
    assert "secret-word" not in repr(settings)
