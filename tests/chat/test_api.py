"""The chat service's API, in this process, on a real file."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from recollect import CannotOpen, Refused, StoreReplaced
from recollect.chat import service
from recollect.chat.app import create_app
from recollect.chat.service import ChatService
from recollect.chat.settings import ChatSettings, checked
from tests.disks import BEST

Serve = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def settings(tmp_path: Path) -> ChatSettings:
    return ChatSettings(memory=f"sqlite:///{tmp_path}/data/memory.db", index="none", allow_ephemeral=True)


@pytest.fixture
def serve(settings: ChatSettings) -> Serve:
    @asynccontextmanager
    async def start(**changes: Any) -> AsyncIterator[httpx.AsyncClient]:
        app = create_app(msgspec.structs.replace(settings, **changes))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                yield client

    return start


async def say(client: httpx.AsyncClient, message: str, **fields: Any) -> dict[str, Any]:
    body = {"user": "xiao", "session": "s", "message": message, **fields}
    answer = await client.post("/chat", json=body)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


async def test_a_name_is_remembered_over_a_restart(serve: Serve) -> None:
    async with serve() as client:
        said = await say(client, "Hello, my name is Xiao Li.")
        assert said["receipt"]["durability"] == BEST.value
        assert [memory["text"] for memory in said["noted"]] == ["The user's name is Xiao Li."]
        assert said["memories"] == []
        assert said["engine"]["stand_in"] is True
        assert said["engine"]["embedder_kind"] == "lexical"
    async with serve() as client:
        asked = await say(client, "what is my name?", session="another")
        assert asked["reply"] == "From memory: The user's name is Xiao Li."
        assert [memory["text"] for memory in asked["memories"]] == ["The user's name is Xiao Li."]


async def test_a_retried_turn_is_stored_and_answered_once(serve: Serve) -> None:
    async with serve() as client:
        first = await say(client, "my name is Xiao Li", turn="t1")
        await say(client, "I live in Shanghai")
        again = await say(client, "my name is Xiao Li", turn="t1")
        assert again["receipt"] == first["receipt"]
        assert again["reply"] == first["reply"]
        both = await asyncio.gather(*(say(client, "I have a cat", turn="t2") for _ in range(5)))
        assert len({reply["receipt"]["first"] for reply in both}) == 1
        history = (await client.get("/history", params={"user": "xiao", "session": "s"})).json()
        assert [item["role"] for item in history] == ["user", "assistant"] * 3
        memories = (await client.get("/memories", params={"user": "xiao"})).json()
        assert [memory["text"] for memory in memories] == [
            "The user has a cat.",
            "The user lives in Shanghai.",
            "The user's name is Xiao Li.",
        ]


async def test_a_streamed_reply_says_first_that_it_is_durable(serve: Serve) -> None:
    async with serve() as client:
        await say(client, "my name is Xiao Li")
        body = {"user": "xiao", "session": "s", "message": "what is my name?", "stream": True, "turn": "q"}
        answer = await client.post("/chat", json=body)
        blocks = [block.split("\n") for block in answer.text.strip().split("\n\n")]
        events = [
            (name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks
        ]
        assert events[0][0] == "remembered"
        assert events[0][1]["receipt"]["durability"] == BEST.value
        assert events[-1][0] == "reply"
        pieces = "".join(data["text"] for name, data in events if name == "piece")
        assert pieces == events[-1][1]["reply"] == "From memory: The user's name is Xiao Li."
        again = await say(client, "what is my name?", turn="q")
        assert again["reply"] == pieces


async def test_forgetting(serve: Serve) -> None:
    async with serve() as client:
        said = await say(client, "my name is Xiao Li. I have a cat")
        memory = said["noted"][0]["id"]
        stranger = await client.delete(f"/memories/{memory}", params={"user": "other"})
        assert stranger.json() == {"forgotten": 0}
        own = await client.delete(f"/memories/{memory}", params={"user": "xiao"})
        assert own.json() == {"forgotten": 1}
        assert (await say(client, "what is my name?"))["reply"] == "I have no memory of that."
        assert (await client.delete("/memories", params={"user": "xiao"})).json() == {"forgotten": 1}
        assert (await client.get("/memories", params={"user": "xiao"})).json() == []
        assert (await client.delete("/history", params={"user": "xiao", "session": "s"})).status_code == 204
        assert (await client.get("/history", params={"user": "xiao", "session": "s"})).json() == []


async def test_users_and_sessions_are_apart(serve: Serve) -> None:
    async with serve() as client:
        await say(client, "my name is Xiao Li", user="a", session="b:c")
        for user, session in (("a:b", "c"), ("a", "b"), ("A", "b:c"), ("a\0", "b:c")):
            history = await client.get("/history", params={"user": user, "session": session})
            assert history.json() == []
        assert (await say(client, "what is my name?", user="a:b"))["memories"] == []


async def test_health_tells_of_the_store_and_the_last_write(serve: Serve, tmp_path: Path) -> None:
    async with serve() as client:
        health = await client.get("/health")
        assert health.status_code == 200
        assert (health.json()["status"], health.json()["durable"], health.json()["same_store"]) == (
            "ok",
            True,
            True,
        )
        await say(client, "my name is Xiao Li")
        assert (await client.get("/health")).json()["last_write_at"] is not None
        for file in (tmp_path / "data").iterdir():
            file.unlink()
        gone = await client.get("/health")
        assert gone.status_code == 503
        assert gone.json()["status"] == "memory-missing"
        refused = await client.post("/chat", json={"user": "xiao", "message": "still there?"})
        assert refused.status_code == 503
        assert refused.json()["error"] == "memory-missing"
        assert (await client.get("/health")).json()["durable"] is False


@pytest.mark.parametrize("memory", [2**63, 2**63 - 1, 2**53, 10**300, 0, -1, -(2**63) - 1])
async def test_a_memory_that_cannot_be_is_not_found_and_locks_nothing(serve: Serve, memory: int) -> None:
    async with serve() as client:
        await say(client, "my name is Xiao Li")
        impossible = await client.delete(f"/memories/{memory}", params={"user": "xiao"})
        assert (impossible.status_code, impossible.json()["error"]) == (404, "not-found")
        await say(client, "I have a cat")
        assert (await client.get("/health")).json()["status"] == "ok"


@pytest.mark.parametrize(("before", "texts"), [(2**63, 1), (2**70, 1), (1, 0), (0, 0)])
async def test_memories_before_any_number_are_told(serve: Serve, before: int, texts: int) -> None:
    async with serve() as client:
        await say(client, "my name is Xiao Li")
        found = await client.get("/memories", params={"user": "xiao", "before": before})
        assert found.status_code == 200
        assert len(found.json()) == texts
        assert (await client.get("/memories", params={"user": "xiao", "before": -1})).status_code == 422


async def test_health_notices_that_writes_fail(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PROBE_EVERY_S", 0.0)
    async with serve() as client:
        await say(client, "my name is Xiao Li")
        assert (await client.get("/health")).status_code == 200
        other = sqlite3.connect(tmp_path / "data" / "memory.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        # Only now: on a busy machine, a write that nothing stands in the way of may take as long.
        monkeypatch.setattr(service, "PROBE_TIMEOUT_S", 0.2)
        failing = await client.get("/health")
        assert (failing.status_code, failing.json()["status"]) == (503, "failing")
        assert "not acknowledged within" in failing.json()["error"]
        other.close()
        monkeypatch.setattr(service, "PROBE_TIMEOUT_S", 3.0)
        deadline = time.monotonic() + 60
        while (await client.get("/health")).status_code != 200:
            assert time.monotonic() < deadline, "the lock is gone, and health says nothing of it"


async def test_a_replaced_store_is_refused_at_start(settings: ChatSettings, tmp_path: Path) -> None:
    witnessed = msgspec.structs.replace(settings, witness=str(tmp_path / "witness.json"))
    service = await ChatService.open(witnessed)
    await service.close()
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    with pytest.raises(StoreReplaced, match="this is another store"):
        await ChatService.open(witnessed)


def test_an_index_that_is_none_is_refused_before_anything_is_served(settings: ChatSettings) -> None:
    with pytest.raises(CannotOpen, match="'redis\\+cluster' is not a vector index; use chroma:///"):
        checked(msgspec.structs.replace(settings, index="redis+cluster://a,b"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": "0.0.0.0"}, "can be reached from elsewhere"),
        ({"host": "0.0.0.0", "token": "short"}, "at least 16"),
        ({"memory": "redis://localhost"}, "long-term memory needs"),
    ],
)
def test_settings_that_are_refused(settings: ChatSettings, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        checked(msgspec.structs.replace(settings, **changes))


def test_loopback_needs_no_token(settings: ChatSettings) -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        checked(msgspec.structs.replace(settings, host=host))


async def test_with_a_token_nothing_is_told_without_it(serve: Serve) -> None:
    token = "a-long-enough-secret"
    async with serve(host="0.0.0.0", token=token) as client:
        for path in ("/memories?user=xiao", "/history?user=xiao"):
            assert (await client.get(path)).status_code == 401
            wrong = await client.get(path, headers={"authorization": "Bearer wrong"})
            assert wrong.status_code == 401
            right = await client.get(path, headers={"authorization": f"Bearer {token}"})
            assert right.status_code == 200
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/health")).status_code == 200


async def test_a_foreign_host_name_is_refused_on_loopback(serve: Serve) -> None:
    async with serve() as client:
        assert (await client.get("/health", headers={"host": "evil.example:8321"})).status_code == 421
        assert (await client.get("/health", headers={"host": "localhost:8321"})).status_code == 200
        assert (await client.get("/health", headers={"host": "[::1]:8321"})).status_code == 200


async def test_requests_are_bounded(serve: Serve) -> None:
    async with serve() as client:
        announced = await client.post("/chat", json={"user": "u", "message": "x" * 70_000})
        assert announced.status_code == 413

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b" " * 1024

        streamed = await client.post("/chat", content=endless(), headers={"content-type": "application/json"})
        assert streamed.status_code == 413
        long = await client.post("/chat", json={"user": "u", "message": "x" * 9_000})
        assert long.status_code == 422
        empty = await client.post("/chat", json={"user": "", "message": "x"})
        assert empty.status_code == 422


async def test_the_pages_need_nothing_from_elsewhere(serve: Serve) -> None:
    async with serve() as client:
        for path in ("/", "/docs"):
            page = await client.get(path)
            assert page.status_code == 200
            assert "http://" not in page.text
            assert "https://" not in page.text
            assert "default-src 'none'" in page.headers["content-security-policy"]
        page = await client.get("/")
        assert "innerHTML =" not in page.text
        described = (await client.get("/openapi.json")).json()
        assert "/chat" in described["paths"]


async def test_a_folder_that_cannot_be_made(settings: ChatSettings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = msgspec.structs.replace(settings, memory=f"sqlite:///{tmp_path}/file/x/memory.db")
    with pytest.raises(CannotOpen, match="cannot be created"):
        await ChatService.open(inside)


async def test_conversations_are_listed_and_everything_is_forgotten(serve: Serve) -> None:
    async with serve() as client:
        await say(client, "My name is Xiao Li.", session="first")
        await say(client, "I have a cat.", session="second")
        await say(client, "My name is Bo.", user="xiao:1", session="other")
        listed = (await client.get("/conversations", params={"user": "xiao"})).json()
        assert [(each["session"], each["last_said"]) for each in listed] == [
            ("second", "I have a cat."),
            ("first", "My name is Xiao Li."),
        ]
        assert listed[0]["updated_at"] >= listed[1]["updated_at"]
        assert len((await client.get("/conversations", params={"user": "xiao", "limit": 1})).json()) == 1
        gone = await client.delete("/everything", params={"user": "xiao"})
        assert gone.json() == {"memories": 2, "conversations": 2}
        assert (await client.get("/conversations", params={"user": "xiao"})).json() == []
        assert (await client.get("/memories", params={"user": "xiao"})).json() == []
        assert len((await client.get("/memories", params={"user": "xiao:1"})).json()) == 1
        assert len((await client.get("/conversations", params={"user": "xiao:1"})).json()) == 1
