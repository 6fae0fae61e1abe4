"""Requests that mean harm, or nonsense: each gets a clear answer, and none reaches what it must not."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recollect import Message
from recollect.chat.app import create_app
from recollect.chat.service import ChatService
from recollect.chat.settings import ChatSettings
from recollect.composite import conversation_id

JSON = {"content-type": "application/json"}
SAID = b'{"user": "u", "message": "remember me"}'


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, ChatService]]:
    app = create_app(
        ChatSettings(memory=f"sqlite:///{tmp_path}/data/memory.db", index="none", allow_ephemeral=True)
    )
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8321") as client:
            yield client, app.state.service


@pytest.fixture
def client(served: tuple[httpx.AsyncClient, ChatService]) -> httpx.AsyncClient:
    return served[0]


# ---- pages of other sites

FOREIGN: dict[str, dict[str, str]] = {
    "origin": {"origin": "https://evil.example"},
    "origin-null": {"origin": "null"},
    "origin-of-another-port": {"origin": "http://127.0.0.1:9999"},
    "origin-like-ours": {"origin": "http://127.0.0.1:8321.evil.example"},
    "origin-without-scheme": {"origin": "127.0.0.1:8321"},
    "origin-of-an-extension": {"origin": "chrome-extension://127.0.0.1:8321"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site"},
    "cross-site-without-origin-check": {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8321"},
}
OURS: dict[str, dict[str, str]] = {
    "no-browser": {},
    "page": {"origin": "http://127.0.0.1:8321", "sec-fetch-site": "same-origin"},
    "old-browser": {"origin": "http://127.0.0.1:8321"},
    "behind-https": {"origin": "https://127.0.0.1:8321"},
    "typed": {"sec-fetch-site": "none"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
async def test_a_page_of_another_site_does_nothing(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    asked = {"user": "u"}
    await client.post("/chat", json={"user": "u", "message": "my name is Xiao Li", "turn": "t"})
    for content_type in ({}, {"content-type": "text/plain"}, JSON):
        answer = await client.post("/chat", content=SAID, headers=headers | content_type)
        assert answer.status_code == 403, answer.text
    for method, path in (
        ("DELETE", "/memories"),
        ("DELETE", "/memories/1"),
        ("DELETE", "/history"),
        ("GET", "/memories"),
        ("GET", "/history"),
        ("OPTIONS", "/chat"),
        ("POST", "/health"),
    ):
        answer = await client.request(method, path, params=asked, headers=headers)
        assert answer.status_code == 403, (method, path)
        assert "access-control-allow-origin" not in answer.headers
    assert [item["turn"] for item in (await client.get("/history", params=asked)).json()] == ["t", "t"]
    assert len((await client.get("/memories", params=asked)).json()) == 1


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
async def test_a_link_from_elsewhere_opens_the_page(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    for path in ("/", "/docs", "/health", "/openapi.json"):
        assert (await client.get(path, headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", OURS.values(), ids=OURS)
async def test_programs_and_our_own_page_pass(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await client.post("/chat", content=SAID, headers=headers | JSON)).status_code == 200
    assert (await client.get("/history", params={"user": "u"}, headers=headers)).status_code == 200
    assert (await client.delete("/memories", params={"user": "u"}, headers=headers)).status_code == 200


async def test_default_ports_are_left_out_of_either_header(client: httpx.AsyncClient) -> None:
    for host, origin in (
        ("127.0.0.1", "http://127.0.0.1"),
        ("127.0.0.1:80", "http://127.0.0.1"),
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("[::1]", "http://[::1]"),
        ("LOCALHOST:8321", "http://localhost:8321"),
    ):
        headers = JSON | {"host": host, "origin": origin}
        assert (await client.post("/chat", content=SAID, headers=headers)).status_code == 200, (host, origin)
    headers = JSON | {"host": "127.0.0.1:443", "origin": "http://127.0.0.1"}
    assert (await client.post("/chat", content=SAID, headers=headers)).status_code == 403


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"],
)
async def test_a_body_must_say_that_it_is_json(client: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    assert (await client.post("/chat", content=SAID, headers=headers)).status_code == 415
    assert (await client.get("/history", params={"user": "u"})).json() == []


# ---- values that JSON, Unicode or an engine cannot hold

BODIES: dict[str, bytes] = {
    "nan-user": b'{"user": NaN, "message": "x"}',
    "infinite-message": b'{"user": "u", "message": Infinity}',
    "nan-turn": b'{"user": "u", "message": "x", "turn": -Infinity}',
    "nan-alone": b"NaN",
    "nan-in-a-list": b"[NaN]",
    "surrogate-user": b'{"user": "\\ud800", "message": "x"}',
    "surrogate-message": b'{"user": "u", "message": "half \\ud83d"}',
    "surrogate-session": b'{"user": "u", "session": "\\udc00", "message": "x"}',
    "surrogate-turn": b'{"user": "u", "message": "x", "turn": "\\ud800"}',
    "surrogate-inside": b'{"user": {"\\ud800": "\\ud800"}, "message": "x"}',
    "not-utf-8": b'{"user": "\xff", "message": "x"}',
    "cut": b'{"user": "u", "mess',
    "nothing": b"",
    "deep": b"[" * 60_000,
    "long-number": b'{"user": "u", "message": ' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_body_that_cannot_be_kept_is_refused_in_plain_words(
    client: httpx.AsyncClient, body: bytes
) -> None:
    answer = await client.post("/chat", content=body, headers=JSON)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["error"] == "refused"
    assert answer.json()["detail"]
    assert (await client.get("/health")).json()["status"] == "ok"


@pytest.mark.parametrize(
    "number", ["0", "-1", str(2**53), str(2**63), str(2**70), "9" * 5000, "NaN", "1e400", "1.5"]
)
async def test_numbers_out_of_range_are_refused(client: httpx.AsyncClient, number: str) -> None:
    paths = ["/memories?user=u&limit=", "/history?user=u&last="]
    if not number.isdigit() or len(number) > 1_000:  # before any other number are those that are smaller
        paths.append("/memories?user=u&before=")
    for path in paths:
        answer = await client.get(f"{path}{number}")
        assert answer.status_code == 422, (path, answer.text)
        assert answer.json()["error"] == "refused"
    assert (await client.delete(f"/memories/{number}?user=u")).status_code in (404, 422)
    assert (await client.post("/chat", content=SAID, headers=JSON)).status_code == 200


async def test_a_query_that_is_not_text_is_refused(client: httpx.AsyncClient) -> None:
    """Decoded with replacements, these users would be one."""
    for user in ("%ff", "%ed%a0%80", "a%c3"):
        for method, path in (("GET", "/history"), ("GET", "/memories"), ("DELETE", "/memories")):
            assert (await client.request(method, f"{path}?user={user}")).status_code == 400
    assert (await client.get("/history?user=%e6%9d%8e")).status_code == 200


async def test_what_the_library_stored_is_shown_whatever_it_is(
    served: tuple[httpx.AsyncClient, ChatService],
) -> None:
    client, service = served
    strange = [
        Message("user", "half \ud83d", metadata={"turn": "\ud800"}),
        Message("ro\ud800le", [{"text": "half \udc00"}, 7], timestamp=1e308, metadata={"turn": 5}),
    ]
    await service.store.append(conversation_id("u", ""), strange)
    await service.recall.add("u", ["fact \ud800"], session="\ud800")
    history = (await client.get("/history", params={"user": "u"})).json()
    assert [(item["role"], item["text"], item["turn"]) for item in history] == [
        ("user", "half \ufffd", "\ufffd"),
        ("ro\ufffdle", "half \ufffd", None),
    ]
    memories = (await client.get("/memories", params={"user": "u"})).json()
    assert [(memory["text"], memory["session"]) for memory in memories] == [("fact \ufffd", "\ufffd")]
    for stream in (False, True):
        asked = await client.post("/chat", json={"user": "u", "message": "which fact?", "stream": stream})
        assert asked.status_code == 200
        assert "fact \ufffd" in (
            asked.text if not stream else json.loads(asked.text.split("data: ")[-1])["reply"]
        )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(
    st.sampled_from(["user", "session", "message", "turn", "stream"]),
    st.text(st.characters(exclude_categories=()), max_size=10) | VALUES,
)


@given(
    fields=FIELDS,
    raw=st.binary(max_size=60),
    method=st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD"]),
)
@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_no_request_is_an_error_of_ours(
    client: httpx.AsyncClient, fields: dict[str, Any], raw: bytes, method: str
) -> None:
    for body in (json.dumps(fields).encode(), raw):
        answer = await client.post("/chat", content=body, headers=JSON)
        assert answer.status_code < 500, (body, answer.text)
    query = "".join(f"%{byte:02x}" for byte in raw)
    for path in (
        f"/history?user=u{query}&session={query}",
        f"/memories?user=u&before={query}",
        f"/memories/{query}",
    ):
        answer = await client.request(method, path, headers=JSON)
        assert answer.status_code < 500, (method, path, answer.text)
