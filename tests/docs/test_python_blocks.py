"""The Python of the pages is run: a page in one namespace, in order, with the names that its text takes for granted."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from recollect.verify.engines import Engine
from recollect.verify.target.target import TRAITS
from tests.docs.blocks import ALL, ELSEWHERE, NOT_HERE, PROJECT, python_of, run_python
from tests.stores.redis_places import started

CODE = [
    page for page in dict.fromkeys(block.page for block in ALL) if python_of(page) and page not in ELSEWHERE
]
NIGHTLY = {"docs/stores/redis-cluster.md": "six servers"}
ALONE = ("docs/observability.md",)
"""They set what a process has once."""
MEMORY = """
class Memory:
    def __init__(self, url):
        self.url = url

ChatMemory = Memory
"""


@dataclass
class Around:
    """What a page is given, and what has to be true after its code."""

    given: Callable[[Any], dict[str, Any]] = field(default=lambda _: {})
    then: str = ""


class LegacyStore:
    def __init__(self, url: str) -> None:
        self.rows: list[SimpleNamespace] = []

    def remember(self, session: str, role: str, text: str) -> None:
        self.rows.append(SimpleNamespace(session=session, role=role, text=text))

    def everything(self, session: str) -> list[SimpleNamespace]:
        return [row for row in self.rows if row.session == session]


class SummaryMemory:
    def get_messages(self, session: str) -> list[dict[str, Any]]:
        return [{"content": "20 earlier messages", "is_summary": True}, {"content": f"hello {session}"}]


def _legacy(_: Any) -> dict[str, Any]:
    here = SimpleNamespace(url="redis://here")
    return {
        "LegacyStore": LegacyStore,
        "SummaryMemory": SummaryMemory,
        "ChatSession": lambda session, url: (session, url),
        "endpoint": here,
        "TRAITS": TRAITS,
    }


def _disk(engine_of: Callable[[str], Engine]) -> dict[str, Any]:
    """An engine that is stopped; the store is a client that is made when it is asked to append."""
    started_before = engine_of("power-loss")
    started_before.stop()

    def append(_: object) -> None:
        with redis.Redis.from_url(started_before.endpoint.url) as client:
            client.rpush("chat", "hello")

    (image := Path("image")).mkdir()
    folder = started_before.data
    return {
        "engine": started_before,
        "store": SimpleNamespace(append=append),
        "folder": folder,
        "image_folder": image,
    }


AROUND = {
    "README.md": Around(
        lambda engine_of: {"there": engine_of("redis").endpoint},
        # The last block that defines it is the reader's own; the first one is in a file of its own: see below.
        "assert make_store(there).url == there.url",
    ),
    "docs/library.md": Around(
        then="""
        async with open_store("sqlite:///memory.db") as store:
            assert (await pop(store, "session-1")).message.text == "I am Xiao Li"
            assert await pop(store, "session-1") is None
        """
    ),
    "docs/recall.md": Around(then="assert 'Xiao Li' in str(found) and 'Xiao Li' in str(prompt)"),
    "docs/stores/redis.md": Around(
        then="""
        async with open_store("redis://localhost:6379/0?prefix=myapp") as store:
            assert [item.message.text for item in await store.history("session-1")] == ["I am Xiao Li"]
        """
    ),
    "docs/engines.md": Around(then="assert endpoint.url.startswith('redis://recollect:')"),
    "docs/named-stores.md": Around(then="assert TARGETS['shop.redis'].engine == 'redis'"),
    "docs/interleavings.md": Around(
        lambda engine_of: {
            "redis": __import__("redis.asyncio"),
            "encode": str,
            "decode": bytes.decode,
            "there": engine_of("redis").endpoint,
        },
        """
        store = Store(there)
        await store.append("docs-interleavings", ["hello"])
        assert await store.history("docs-interleavings") == ["hello"]
        await store.client.delete("chat:docs-interleavings")
        await store.client.aclose()
        """,
    ),
    "docs/power-loss.md": Around(_disk, "assert any(image_folder.rglob('*.aof')) and state"),
    "docs/write-a-target.md": Around(
        _legacy,
        """
        adapter = Adapter("redis://here")
        adapter.append_message("s", {"role": "user", "content": "hello"})
        assert adapter.get_messages("s") == ["hello"] and adapter.get_messages("t") == []
        assert make_session(endpoint, "s") == ("s", "redis://here")
        assert Target().get_messages("s") == [{"content": "hello s"}]
        assert set(ChatMemory.traits) <= set(TRAITS)
        """,
    ),
    "docs/verify-your-store.md": Around(
        lambda _: {"endpoint": SimpleNamespace(url="redis://here")},
        "assert make_store(endpoint).url == 'redis://here'",
    ),
}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that has what readers have: their own package."""
    for package in ("shop", "myapp"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / "memory.py").write_text(MEMORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("shop", "myapp")]:
        del sys.modules[name]


@pytest.fixture
def engines(engine_of: Callable[[str], Engine]) -> Iterator[Callable[[str], Engine]]:
    """The engines that all tests share, and one of its own for the page that stops it."""
    own: list[Engine] = []

    def get(name: str) -> Engine:
        if name != "power-loss":
            return engine_of(name)
        from recollect.verify import engines

        engine = engines.create("redis@7", "aof-always")
        engine.start()
        own.append(engine)
        return engine

    yield get
    for engine in own:
        engine.close()


@pytest.mark.parametrize("page", CODE)
def test_python(
    page: str,
    elsewhere: Path,
    engines: Callable[[str], Engine],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if page in NIGHTLY and "RECOLLECT_FULL_DOCS" not in os.environ:
        pytest.skip(f"set RECOLLECT_FULL_DOCS=1: {NIGHTLY[page]}")
    around = AROUND.get(page, Around())
    names = {"__name__": "page", **around.given(engines)}
    code = [each for each in python_of(page) if each.splitlines()[0] not in NOT_HERE]
    for block in (*code, textwrap.dedent(around.then)):
        block = _live(block, engines)
        if page in ALONE:
            _run_alone(block, elsewhere)
        else:
            run_python(block, names, page)
    if page == "README.md":
        (shown,) = [
            block.text for block in ALL if block.page == page and block.text.startswith("1 user I am Xiao Li")
        ]
        assert capsys.readouterr().out == shown


def _live(block: str, engines: Callable[[str], Engine]) -> str:
    """With addresses where somebody answers."""
    if "redis+cluster:" in block:
        return block.replace(
            "redis+cluster://10.0.0.1:7000,10.0.0.2:7000", engines("redis-cluster").endpoint.url
        )
    if "redis://localhost:6379" in block:
        return block.replace("localhost:6379", f"127.0.0.1:{engines('redis').endpoint.port}")
    return block


def _run_alone(block: str, folder: Path) -> None:
    run = f"from tests.docs.blocks import run_python\nrun_python({block!r}, {{}}, 'page')"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", run],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not block.strip() or '"trace_id"' in done.stdout, done.stdout


def test_the_store_that_opens_the_readme(engines: Callable[[str], Engine]) -> None:
    names: dict[str, Any] = {}
    run_python(python_of("README.md")[0], names, "README.md")
    store = names["make_store"](engines("redis").endpoint)
    store.save("docs-readme", [{"role": "user", "content": "hello"}])
    assert store.load("docs-readme") == [{"role": "user", "content": "hello"}]
    store.redis.delete("session:docs-readme")
    store.redis.close()


def test_the_settings_of_the_page() -> None:
    """What docs/stores/redis.md says to type on a server that has only snapshots."""
    (block,) = [block for block in ALL if block.beginning == "CONFIG SET appendonly yes"]
    with started("redis@7", "rdb") as engine, redis.Redis.from_url(engine.endpoint.url) as client:
        for line in block.text.splitlines():
            words = line.partition("#")[0].split()
            assert client.execute_command(*words)
        assert client.config_get("append*")["appendfsync"] == "always"
        assert client.config_get("append*")["appendonly"] == "yes"
