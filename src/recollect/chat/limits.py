"""Around every request: who may ask, and how much they may send. Plain ASGI, before anything is parsed.

* A body above the limit ends the request with 413, whether its length was announced or not.
* With a token, everything but the page, its documentation and `/health` needs ``Authorization: Bearer``.
* On loopback the Host header must be a loopback name: a web page elsewhere that resolves its own name to 127.0.0.1 does
  not reach the memory.
"""

import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from recollect.chat.settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/", "/health", "/docs", "/openapi.json"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class _TooLarge(Exception):
    pass


class Limits:
    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = self._refusal(scope["path"], headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        await self._bounded(scope, receive, send)

    def _refusal(self, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        settings = self._settings
        if settings.token is None:
            host = headers.get("host", "").lower()
            name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if name not in _LOOPBACK_NAMES:
                return 421, "this service answers on loopback only; ask it at http://127.0.0.1"
        elif path not in OPEN_PATHS:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {settings.token}".encode()):
                return 401, "a token is needed: Authorization: Bearer …"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > settings.request_bytes_max:
            return 413, f"at most {settings.request_bytes_max} bytes in a request"
        return None

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = self._settings.request_bytes_max
        taken = 0
        answered = False

        async def counted() -> MutableMapping[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise _TooLarge
            return message

        async def passed(message: MutableMapping[str, Any]) -> None:
            nonlocal answered
            # The framework turns our exception into an answer of its own, which is not the right one.
            if answered or taken <= most:
                answered = True
                await send(message)

        with contextlib.suppress(_TooLarge):
            await self._app(scope, counted, passed)
        if not answered and taken > most:
            await _answer(send, 413, f"at most {most} bytes in a request")


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"error": "refused", "detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
