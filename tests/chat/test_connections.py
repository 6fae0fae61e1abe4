"""Connections that say nothing, little, or too slowly do not keep the others out."""

import asyncio
import json
import socket
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from recollect import Message
from recollect.chat import connections
from recollect.chat.app import create_app
from recollect.chat.settings import ChatSettings
from recollect.recall.llm import StandIn
from recollect.verify.suite.service import Service
from tests.chat.conftest import CHAT
from tests.chat.serving import listening

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

SAID = json.dumps({"user": "u", "message": "x"}).encode()
HEAD = b"POST /chat HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: %d\r\n\r\n%b" % (len(SAID), SAID)


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return create_app(
        ChatSettings(memory=f"sqlite:///{tmp_path}/data/memory.db", index="none", allow_ephemeral=True)
    )


async def opened(port: int, said: bytes) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def ending(stream: Stream) -> bytes:
    """What the service says before it ends the connection; a reset counts as nothing said."""
    reader, writer = stream
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


UNFINISHED = {
    "nothing": b"",
    "a-line": b"POST /chat HTTP/1.1\r\n",
    "a-head": HEAD,
    "no-body": WHOLE[: -len(SAID)],
}


@pytest.mark.parametrize("said", UNFINISHED.values(), ids=UNFINISHED)
async def test_a_request_that_never_ends_is_ended(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connections, "BODY_TIMEOUT_S", 0.5)
    async with listening(app) as port:
        said_back = await ending(await opened(port, said))
        assert said_back.startswith(b"HTTP/1.1 408 " if said else b"")
        assert bool(said_back) == bool(said)


@pytest.mark.parametrize("before", [b"", WHOLE], ids=["first-request", "second-request"])
async def test_dripping_bytes_do_not_prolong_it(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 1.0)
    async with listening(app) as port:
        reader, writer = await opened(port, before)

        async def drip() -> None:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        try:
            answer = await ending((reader, writer))
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
        assert answer.count(b"HTTP/1.1 200 ") == (1 if before else 0)
        assert answer.count(b"HTTP/1.1 408 ") == 1


@pytest.mark.parametrize("late", [b"G", WHOLE[:-1]], ids=["head", "body"])
async def test_a_client_that_writes_on_can_still_read_its_answers(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, late: bytes
) -> None:
    """A connection that is closed before everything in it was read is reset, and answers on their way are lost."""
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connections, "BODY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connections, "LINGER_S", 60.0)
    async with listening(app) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            client.sendall(WHOLE + late)
            deadline = asyncio.get_running_loop().time() + 30
            while b" 408 " not in arrived(client):
                assert asyncio.get_running_loop().time() < deadline, "no refusal came"
                await asyncio.sleep(0.02)
            for _ in range(20):
                client.send(b"x")
                await asyncio.sleep(0.01)
            assert arrived(client).count(b"HTTP/1.1 200 ") == 1


def arrived(client: socket.socket) -> bytes:
    """What can be read, without taking it."""
    try:
        return client.recv(1 << 16, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


class Slow(StandIn):
    """A model that thinks for longer than a request may take."""

    async def complete(self, messages: Sequence[Message]) -> str:
        await asyncio.sleep(0.8)
        return await super().complete(messages)


async def test_an_answer_may_take_longer_than_a_request(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of a second request that came with the first."""
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connections, "BODY_TIMEOUT_S", 0.5)
    async with listening(app) as port:
        app.state.service.recall.llm = Slow()
        stream = await opened(port, WHOLE + WHOLE.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        assert (await ending(stream)).count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("requests", [20, 100])
async def test_an_answer_that_nobody_takes_is_given_up(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    """With many at once, the later ones wait for the first, which fills the connection."""
    async with listening(app) as port:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            for n in range(60):
                body = {"user": "u", "message": f"{n} " + "x" * 7_900}
                assert (await client.post("/chat", json=body)).status_code == 200
        monkeypatch.setattr(connections, "ANSWER_TIMEOUT_S", 0.3)
        monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.3)
        asked = b"GET /history?user=u&last=500 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.setblocking(False)
            deaf.sendall(asked * requests)  # the answers fill every buffer on the way, and stay there
            deadline = asyncio.get_running_loop().time() + 30
            while not ended(deaf):
                assert asyncio.get_running_loop().time() < deadline, "the answer waits for ever"
                await asyncio.sleep(0.05)


def ended(connection: socket.socket) -> bool:
    """Whether the other side has dropped the connection: sending fails, although nothing was read."""
    try:
        connection.send(b"x")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return False


async def test_too_long_a_head_is_refused(app: FastAPI) -> None:
    async with listening(app) as port:
        for said in (
            HEAD + b"x-long: " + b"x" * connections.HEAD_BYTES_MAX,
            HEAD + b"".join(b"x-%d: y\r\n" % n for n in range(5_000)),
            b"GET /" + b"x" * connections.HEAD_BYTES_MAX,
        ):
            assert (await ending(await opened(port, said))).startswith(b"HTTP/1.1 400 ")


async def test_new_connections_take_the_place_of_the_oldest_that_wait(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 20)
    async with listening(app) as port:
        held = [await opened(port, HEAD) for _ in range(60)]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            for _ in range(3):
                assert (await client.post("/chat", json={"user": "u", "message": "x"})).status_code == 200
        assert all([await ending(stream) == b"" for stream in held[:40]])
        for _, writer in held[40:]:
            writer.close()


def test_four_hundred_half_open_sockets_do_not_shut_out_anybody(tmp_path: Path) -> None:
    """The service as it is started, in a process that may open 256 files."""
    few = ["sh", "-c", 'ulimit -n 256 && exec "$0" "$@"', *CHAT]
    service = Service(few, tmp_path, data_env="RECOLLECT_DATA")
    try:
        service.start()

        async def crowd() -> None:
            port = httpx.URL(service.direct_url).port
            assert port is not None
            held = [await opened(port, HEAD) for _ in range(400)]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
                for n in range(5):
                    said = await client.post("/chat", json={"user": "u", "message": f"still there? {n}"})
                    assert said.status_code == 200
            for _, writer in held:
                writer.close()

        asyncio.run(crowd())
    finally:
        service.close()
