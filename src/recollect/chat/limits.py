"""Checks every request: who may ask, and how much they may send. Plain ASGI, before anything is parsed.

* A body above the limit ends the request with 413, whether its length was announced or not.
* With a token, everything but the page, its documentation and `/health` needs ``Authorization: Bearer``.
* On loopback the Host header must be a loopback name: a web page elsewhere that resolves its own name to 127.0.0.1 does
  not reach the memory.
* Requests from another site's page are refused with 403. Browsers say so in Sec-Fetch-Site; if that is missing (plain
  http, old browsers), Origin must name the host that was asked. Programs send neither, and our own pages pass.
* A body must be declared as JSON (415): another site's page cannot send that without a preflight, which is refused.

The last two do not rely on the framework, whose releases differ in what they accept.
"""

import contextlib
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

from recollect.chat.settings import ChatSettings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/", "/health", "/docs", "/openapi.json"})
LENGTH_DIGITS_MAX = 15
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class _TooLarge(Exception):
    pass


class Limits:
    def __init__(self, app: App, settings: ChatSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        refusal = self._refusal(scope["method"], scope["path"], headers)
        if refusal is None and not _is_text(scope["query_string"]):
            refusal = 400, "the query is not UTF-8"  # decoded with replacements, two ids would become one
        if refusal is not None:
            await _answer(send, *refusal)
            return
        await self._bounded(scope, receive, send)

    def _refusal(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        settings = self._settings
        reads_a_page = method in ("GET", "HEAD") and path in OPEN_PATHS
        if settings.token is None:
            host = headers.get("host", "").lower()
            name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
            if name not in _LOOPBACK_NAMES:
                return 421, "this service answers on loopback only; ask it at http://127.0.0.1"
        elif path not in OPEN_PATHS:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {settings.token}".encode()):
                return 401, "a token is needed: Authorization: Bearer …"
        if not reads_a_page and _from_another_site(headers):
            return 403, "a page of another site may not use this memory"
        if method in ("POST", "PUT", "PATCH") and not _is_json(headers.get("content-type", "")):
            return 415, "send JSON, with the header content-type: application/json"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > LENGTH_DIGITS_MAX:
            return (
                413,
                f"content-length {length[:20]!r}: at most {settings.request_bytes_max} bytes in a request",
            )
        if int(length) > settings.request_bytes_max:
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
            # The framework turns our exception into an answer of its own, which would be the wrong one.
            if answered or taken <= most:
                answered = True
                await send(message)

        with contextlib.suppress(_TooLarge):
            await self._app(scope, counted, passed)
        if not answered and taken > most:
            await _answer(send, 413, f"at most {most} bytes in a request")


def _from_another_site(headers: dict[str, str]) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return False
    scheme, _, authority = origin.lower().partition("://")
    default = {"http": ":80", "https": ":443"}.get(scheme)
    asked = headers.get("host", "").lower()
    # We do not know whether a proxy in front of us uses http or https, so only the host decides.
    return default is None or authority.removesuffix(default) != asked.removesuffix(default)


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _is_text(query: bytes) -> bool:
    try:
        unquote_to_bytes(query).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


async def _answer(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"error": "refused", "detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
