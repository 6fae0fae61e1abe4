"""The attacks on servers and on the chat service find the mistakes that they are for, and accuse nobody else."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tools.attack import chat_kills, chat_service, hostile_http, hostile_redis, postgres_kills, stores
from tools.attack.assault import Assault

from recollect.stores.redis.store import RedisStore

pytestmark = pytest.mark.skipif("RECOLLECT_FULL_TOOLS" not in os.environ, reason="set RECOLLECT_FULL_TOOLS=1")

CHAT = """
import asyncio, sys
from recollect.stores.sqlite.store import SqliteStore
append, history = SqliteStore.append, SqliteStore.history

async def forgetful(self, session, messages, **options):
    receipt = await append(self, session, messages, **{**options, "turn": None})
    await asyncio.sleep(0.3)
    return receipt

async def short(self, session, **options):
    found = await history(self, session, **options)
    return found[:-3] if options.get("last") == 500 else found

PLANTED
from recollect.cli import main
sys.argv[0] = "recollect"
main()
"""
CARELESS_HTTP = """
import http.server, json, sys

class Careless(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200)

    def do_POST(self):
        try:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            said = json.loads(body)
            said["message"].upper()
        except Exception:
            return self.answer(WHEN_ODD)
        self.answer(WHEN_WELL)

    do_DELETE = do_PUT = do_PATCH = do_GET

    def answer(self, code):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b"{}")

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Careless).serve_forever()
"""


def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    (tmp_path / "planted.py").write_text(text)
    monkeypatch.setattr(chat_service, "PROGRAM", (sys.executable, str(tmp_path / "planted.py")))


@pytest.mark.parametrize(
    ("planted", "found"),
    [("SqliteStore.append = forgetful", "times"), ("SqliteStore.history = short", "is gone"), ("", None)],
    ids=["forgets turn ids", "loses the newest", "ours"],
)
def test_chat_kills(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, planted: str, found: str | None) -> None:
    program(monkeypatch, tmp_path, CHAT.replace("PLANTED", planted))
    assault = Assault(300.0, seed=1, limit=3)
    chat_kills.attack(assault)
    if found is None:
        assert assault.findings == []
        assert assault.counts["kills"] == 3
    else:
        assert any(found in told for told in assault.findings), assault.findings


@pytest.mark.parametrize(
    ("when_odd", "when_well", "found"),
    [(500, 200, ": 500"), (422, 503, "ordinary user"), (422, 200, None)],
    ids=["raises", "serves nobody", "refuses"],
)
def test_hostile_http(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, when_odd: int, when_well: int, found: str | None
) -> None:
    text = CARELESS_HTTP.replace("WHEN_ODD", str(when_odd)).replace("WHEN_WELL", str(when_well))
    program(monkeypatch, tmp_path, text)
    assault = Assault(60.0, seed=1, limit=60)
    hostile_http.attack(assault)
    if found is None:
        assert assault.findings == []
        assert assault.counts["ordinary turns"] == 2
    else:
        assert any(found in told for told in assault.findings), assault.findings


async def _does_not_look(self: RedisStore, *_: Any) -> bool:
    """Goes on as if nothing had happened."""
    return True


@pytest.mark.parametrize("planted", ["forgets turn ids", "does not look", "ours"])
def test_hostile_redis(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    append = RedisStore.append

    async def forgetful(self: RedisStore, session: str, messages: Any, **options: Any) -> Any:
        return await append(self, session, messages, **{**options, "turn": None})

    if planted == "forgets turn ids":
        monkeypatch.setattr(RedisStore, "append", forgetful)
    elif planted == "does not look":
        monkeypatch.setattr(RedisStore, "_has_lost", _does_not_look)
    if planted == "ours":
        assault = Assault(90.0, seed=1, limit=1600)
        hostile_redis.attack(assault)
        assert assault.findings == []
        assert assault.counts["told that the store was replaced"] == 2 * (hostile_redis.TASKS + 2)
    else:
        found = "twice" if planted == "forgets turn ids" else "after FLUSHALL"
        assert any(map(partial(_hostile_redis_tells, found), range(1, 9)))


def _hostile_redis_tells(found: str, seed: int) -> bool:
    """A connection that is killed between the write and its answer is a matter of luck."""
    assault = Assault(90.0, seed=seed, limit=1600)
    hostile_redis.attack(assault)
    return any(found in told for told in assault.findings)


@pytest.mark.parametrize(
    ("policy", "found"),
    [("async-commit", "missing"), ("default", None)],
    ids=["acknowledges too early", "ours"],
)
def test_postgres_kills(monkeypatch: pytest.MonkeyPatch, policy: str, found: str | None) -> None:
    """An engine that acknowledges before it has written is what this attack has to see."""
    monkeypatch.setattr(stores, "ENGINES", {**stores.ENGINES, "postgres": ("postgres", policy)})
    monkeypatch.setattr(postgres_kills, "BETWEEN_KILLS_S", 0.3)
    assault = Assault(20.0, seed=1, limit=20_000)
    postgres_kills.attack(assault)
    assert assault.counts["kills"] >= 1
    if found is None:
        assert assault.findings == []
    else:
        assert any(found in told for told in assault.findings), assault.findings
