"""Whose lines an append may die on."""

import sqlite3
import types
from pathlib import Path
from typing import Any

import pytest
import redis

from recollect.verify.target.line_watching import LineWatch, files_of, wrapped_by


class Adapter:
    """One line of its own: the rest is a framework's."""

    def __init__(self, framework: Any) -> None:
        self.framework = framework
        self.connection = sqlite3.connect(":memory:")
        self.client = redis.Redis()
        self.names = ["a"]

    def append(self, session: str, message: str) -> None:
        self.framework.add(session, message)


@pytest.fixture
def framework(tmp_path: Path) -> Any:
    file = tmp_path / "framework_memory.py"
    file.write_text(
        "class History:\n"
        "    def __init__(self):\n"
        "        self.rows = []\n"
        "    def add(self, session, message):\n"
        "        first = (session, 'user')\n"
        "        self.rows.append(first)\n"
        "        self.rows.append(message)\n"
    )
    module = types.ModuleType("framework_memory")
    module.__file__ = str(file)
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module


def test_an_adapter_is_followed_into_what_it_adapts(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "framework_memory", framework)
    history = framework.History()
    store = Adapter(history)
    assert wrapped_by(store) == [history], "no driver, nothing of Python's"
    watch = LineWatch(files_of(store, *wrapped_by(store)))
    watch.arm("record", "", lambda line: None)
    with watch:
        store.append("s", "m")
    assert watch.seen[1:] == [f"framework_memory.py:{line}" for line in (5, 6, 7)]


def test_what_a_store_holds_of_its_own_package_is_its_own() -> None:
    store = Adapter(None)
    store.framework = Adapter(None)
    assert wrapped_by(store) == []
