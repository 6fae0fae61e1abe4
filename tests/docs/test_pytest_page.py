"""The tests that docs/pytest.md shows: its fixtures work, its suite is collected, its two requests collide."""

import os

import pytest

from tests.docs.blocks import ALL, python_of

PAGE = "docs/pytest.md"
INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
CHAT_MEMORY = '''
import json

import redis
import redis.asyncio


def encode(message):
    return {"role": message.role, "content": message.text}


class ChatMemory:
    """A session is one JSON value: read it, add to it, write it back."""

    def __init__(self, url):
        self.client = redis.asyncio.Redis.from_url(url)

    async def append(self, session, messages):
        known = json.loads(await self.client.get(f"chat:{session}") or "[]")
        await self.client.set(f"chat:{session}", json.dumps(known + list(messages), default=encode))

    async def history(self, session):
        return json.loads(await self.client.get(f"chat:{session}") or "[]")

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.client.aclose()


async def handle(store, session, text):
    await store.append(session, [text, f"you said {text}"])
'''


def _block(word: str) -> str:
    (code,) = [code for code in python_of(PAGE) if word in code]
    return code


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini(INI)
    shop = pytester.mkpydir("shop")
    (shop / "memory.py").write_text(CHAT_MEMORY)
    return pytester


def test_fixtures_of_the_page_work(project: pytest.Pytester) -> None:
    project.makepyfile(_block("redis_engine"))
    project.runpytest_inprocess("-p", "no:xdist").assert_outcomes(passed=2)


def test_an_engine_of_any_scope(project: pytest.Pytester) -> None:
    """A container is needed for the other fixture: tests/providers/test_handed.py hands one over."""
    used = "def test_it(shared):\n    assert shared.policy == 'aof-always'\n    shared.restart()\n"
    project.makepyfile(f"import pytest\n\n{_block('RedisContainer')}\n\n{used}")
    project.runpytest_inprocess("-p", "no:xdist").assert_outcomes(passed=1)


def test_the_suite_of_the_page(project: pytest.Pytester) -> None:
    """All of its cells take a minute, so they are only counted, unless RECOLLECT_FULL_DOCS=1."""
    project.makepyfile(_block("MemoryStoreSuite"))
    project.syspathinsert()
    if "RECOLLECT_FULL_DOCS" not in os.environ:
        project.runpytest_inprocess("-p", "no:xdist", "--collect-only", "-q").stdout.fnmatch_lines(
            ["*TestChatMemory::test_survives?aof-everysec-kill-engine*", "*test_survives?rdb-lost-ack*"]
        )
        return
    project.runpytest_subprocess("-p", "no:xdist").stdout.fnmatch_lines(["*lost-update*"])


def test_two_requests_at_once(project: pytest.Pytester) -> None:
    """It fails, as the page shows: in an order of its tasks that can be had again."""
    project.makepyfile(f"{CHAT_MEMORY}\n\n{_block('interleaved')}")
    said = project.runpytest_inprocess("-p", "no:xdist", "--recollect-engine", "redis")
    said.assert_outcomes(failed=1)
    (shown,) = [block.text for block in ALL if block.page == PAGE and block.beginning.startswith("E  ")]
    first, *_, last = shown.splitlines()
    for line in (first, last):
        known = line.removeprefix("E").strip().partition(",")[0].partition("(")[0]
        said.stdout.fnmatch_lines([f"*{known}*"])


def test_the_page_has_no_other_code() -> None:
    assert len(python_of(PAGE)) == 4
