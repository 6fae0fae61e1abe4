"""Hostile requests at the chat service: values that no record holds, foreign pages, half-open and endless requests.

Each is answered with a refusal or not at all, never with a 500; beside them an ordinary user is served all the time.
"""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
from tools.attack.assault import Assault
from tools.attack.chat_service import service_in

from recollect.verify.suite.service import Service

TIMES = 2_000
ODD = (
    "NaN",
    "1e999",
    "-1",
    str(2**63),
    str(2**70),
    '"\\ud800"',
    '"\\u0000"',
    "null",
    "[[[[1]]]]",
    "{}",
    '""',
    "true",
)
PATHS = (
    "/chat",
    "/memories",
    "/history",
    "/health",
    "/memories/9223372036854775808",
    "/nothing",
    "/memories/-1",
)


def attack(assault: Assault) -> None:
    with tempfile.TemporaryDirectory(prefix="recollect-attack-") as folder:
        service = service_in(Path(folder))
        with contextlib.closing(service.start()):
            while assault.counts["hostile requests"] < (assault.limit or TIMES) and assault.goes_on():
                assault.rng.choice(KINDS)(assault, service)
                assault.count("hostile requests")
                if assault.counts["hostile requests"] % 50 == 0:
                    _ordinary_user(assault, service)
            _ordinary_user(assault, service)


def _ordinary_user(assault: Assault, service: Service) -> None:
    body = {"user": "ordinary", "message": f"hello {assault.rng.random()}"}
    try:
        answer = httpx.post(f"{service.direct_url}/chat", json=body, timeout=20)
    except httpx.TransportError as error:
        assault.found(f"an ordinary user was not answered: {type(error).__name__}")
        return
    if assault.expect(answer.status_code == 200, f"an ordinary user was answered {answer.status_code}"):
        assault.count("ordinary turns")


def _odd_body(assault: Assault, service: Service) -> None:
    rng = assault.rng
    fields = {name: rng.choice(ODD) for name in ("user", "message", "session", "turn") if rng.random() < 0.8}
    body = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    headers = {"content-type": rng.choice(["application/json", "text/plain", "x"])}
    if rng.random() < 0.3:
        headers["origin"] = "http://elsewhere.example"
    _send(assault, service, "POST", rng.choice(PATHS), content=body.encode(), headers=headers)


def _odd_address(assault: Assault, service: Service) -> None:
    rng = assault.rng
    query = {
        name: json.loads(rng.choice(["1", '"x"', str(2**70), '"NaN"'])) for name in ("user", "before", "last")
    }
    _send(assault, service, rng.choice(["GET", "DELETE", "PUT", "PATCH"]), rng.choice(PATHS), params=query)


def _send(assault: Assault, service: Service, method: str, path: str, **more: object) -> None:
    try:
        answer = httpx.request(method, service.direct_url + path, timeout=20, **more)  # type: ignore[arg-type]
    except httpx.TransportError:
        return  # hung up on
    assault.expect(answer.status_code != 500, f"{method} {path} {more}: 500")


def _raw(assault: Assault, service: Service) -> None:
    """Half a request, an endless header, or no request at all; the connection is left to the service."""
    host, port = service.direct_url.removeprefix("http://").split(":")
    half = assault.rng.choice(
        [
            b"",
            b"GET /",
            b"POST /chat HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n{",
            b"X: " + b"a" * 100_000,
            b"\x00" * 64,
        ]
    )
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(half)


KINDS: tuple[Callable[[Assault, Service], None], ...] = (_odd_body, _odd_address, _raw)
