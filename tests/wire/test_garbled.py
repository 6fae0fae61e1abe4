"""Servers that say what no Redis and no PostgreSQL says: an error that callers know, at once, whatever it is."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from recollect import EngineUnavailable, doctor
from recollect.verify import engines
from recollect.verify.host.errors import StartFailed
from recollect.verify.wire import pgwire, resp
from recollect.verify.wire.stream import Garbled


@contextmanager
def server(*answers: bytes) -> Iterator[int]:
    """The port of something that answers the n-th message with the n-th answer, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                for answer in answers:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


GARBLED = {
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no number": b":many\r\n",
    "a number of hundreds of digits": b":" + b"1" * 400 + b"\r\n",
    "no length": b"$x\r\n",
    "a length of gigabytes": b"$99999999999\r\n",
    "a length below none": b"$-7\r\n",
    "items without end": b"*99999999999\r\n",
    "nested without end": b"*1\r\n" * 10_000,
    "a line without end": b"+" + b"x" * 100_000,
}


@pytest.mark.parametrize("answer", GARBLED.values(), ids=GARBLED)
def test_what_no_redis_says(answer: bytes) -> None:
    with server(answer) as port, resp.Connection(resp.Address(port=port)) as connection:
        with pytest.raises(Garbled):
            connection.ask("PING")


def message(kind: bytes, body: bytes, length: int | None = None) -> bytes:
    return kind + (len(body) + 4 if length is None else length).to_bytes(4, "big", signed=True) + body


WELCOME = message(b"R", bytes(4)) + message(b"Z", b"I")
ASKS_SCRAM = message(b"R", b"\0\0\0\x0aSCRAM-SHA-256\0\0")


def challenge(text: str) -> bytes:
    return message(b"R", b"\0\0\0\x0b" + text.encode())


STARTS = {
    "another protocol": (b"HTTP/1.1 400 Bad Request\r\n\r\n",),
    "a negative length": (message(b"R", b"", -7),),
    "a length of gigabytes": (message(b"R", b"", 2**31 - 1),),
    "half a number": (message(b"R", b"\0\0"),),
    "a challenge without fields": (ASKS_SCRAM, challenge("nonsense")),
    "a salt that is none": (ASKS_SCRAM, challenge("r=x,s=%%%,i=4096")),
    "a challenge of days": (ASKS_SCRAM, challenge("r=x,s=c2FsdA==,i=2147483647")),
    "text that is none": (ASKS_SCRAM, message(b"R", b"\0\0\0\x0b\xff\xfe")),
}


@pytest.mark.parametrize("answers", STARTS.values(), ids=STARTS)
def test_what_no_postgresql_says_at_the_start(answers: tuple[bytes, ...]) -> None:
    with server(*answers) as port:
        with pytest.raises(Garbled):
            pgwire.Connection(pgwire.Address(port=port, password="secret"))


ROWS = {
    "a row that ends early": message(b"D", b"\0\2\0\0\0\3ab"),
    "a value longer than the row": message(b"D", b"\0\1\x7f\0\0\0x"),
    "text that is none": message(b"D", b"\0\1\0\0\0\1\xff"),
    "no row at all": message(b"Z", b"I"),
    "a row of nothing": message(b"D", b"\0\0") + message(b"Z", b"I"),
}


@pytest.mark.parametrize("answer", ROWS.values(), ids=ROWS)
def test_what_no_postgresql_says_to_a_question(answer: bytes) -> None:
    with server(WELCOME, answer) as port, pgwire.Connection(pgwire.Address(port=port)) as connection:
        with pytest.raises(Garbled):
            connection.value("SELECT 1")


@pytest.mark.parametrize(
    "answer", [b"$-1\r\n", b"$0\r\n\r\n", *GARBLED.values()], ids=["nil", "nothing", *GARBLED]
)
def test_an_address_where_no_redis_is_is_told(answer: bytes) -> None:
    with server(answer) as port:
        with pytest.raises(StartFailed, match="cannot be used"):
            engines.attach(f"redis://127.0.0.1:{port}/15").start()


async def test_a_doctor_is_told_too() -> None:
    with server(b"*1\r\n" * 100_000) as port:
        with pytest.raises(EngineUnavailable):
            await doctor.examine(f"redis://:secret@127.0.0.1:{port}/0", 10.0)
