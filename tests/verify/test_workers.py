"""Libraries are imported once, in the process that workers are forked from; a target's own modules by each worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.verify.target.own_modules import Library, is_own, libraries_of
from recollect.verify.target.registry import imports_of

NOTES_ITS_PROCESS = """
import os, pathlib
with open(pathlib.Path(__file__).with_suffix(".pids"), "a") as pids:
    pids.write(f"{os.getpid()}\\n")
"""
STORE = """
class Store:
    def append_message(self, session, message): ...
    def get_messages(self, session): return []
def make(endpoint): return Store()
"""
THREAD = """
import threading
thread = threading.Thread(target=threading.Event().wait, daemon=True)
thread.start()
"""
THREAD_THAT_STAYS = THREAD.replace(", daemon=True", "")
SAYS_WHETHER_IT_RUNS = """
def make(endpoint):
    assert thread.is_alive(), "the module's thread is gone"
    return Store()
"""
TWO_CELLS = """
from pathlib import Path
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.target.workers import Workers

named = {"engine": "redis", "product": "Redis", "version": "7", "policy": "none", "provider": "system"}
endpoint = Endpoint(url="redis://127.0.0.1:1/0", **named)
for name in ("first", "second"):
    workers = Workers(Path(name + ".log"), (name + ":",))
    for _ in range(3):
        workers.start(f"{name}:make", endpoint)
    workers.close_all()
"""


def run_two_cells(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWO_CELLS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "site-packages"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def processes_that_imported(module: Path) -> list[str]:
    return module.with_suffix(".pids").read_text().split()


def test_a_second_cell_has_its_libraries_imported_once_too(tmp_path: Path) -> None:
    """Also after a library with a thread that never ends, which no process that imported it outlives by itself."""
    libraries = tmp_path / "site-packages"
    libraries.mkdir()
    for name, more in (("first", THREAD_THAT_STAYS), ("second", "")):
        (libraries / f"of_the_{name}.py").write_text(NOTES_ITS_PROCESS + more)
        (tmp_path / f"{name}.py").write_text(f"import of_the_{name}\n{STORE}")
    run_two_cells(tmp_path)
    first, second = (processes_that_imported(libraries / f"of_the_{name}.py") for name in ("first", "second"))
    assert len(second) == 1
    assert len(first) == 2, "by the fork server, and by the one after it"


def test_every_worker_has_the_targets_own_modules_to_itself(tmp_path: Path) -> None:
    """With what they have made: a number of the process, a thread."""
    (tmp_path / "beside.py").write_text(NOTES_ITS_PROCESS)
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(f"import beside\n{STORE}{THREAD}{SAYS_WHETHER_IT_RUNS}")
    run_two_cells(tmp_path)
    imported = processes_that_imported(tmp_path / "beside.py")
    assert len(set(imported)) == 6


def test_what_a_target_imports_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "shop_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("import json\nraise RuntimeError\n")
    (package / "memory.py").write_text(
        "from shop_of_a_test.rows import Row\nfrom . import keys\nfrom redis.asyncio import Redis\n"
        "def late(): import decimal\n"
    )
    (package / "rows.py").write_text("try:\n    import orjson\nfinally:\n    pass\n")
    (package / "keys.py").write_text("import beside_the_shop\nimport not_installed\n")
    (tmp_path / "beside_the_shop.py").write_text("import sqlite3, os.path\n")
    assert set(libraries_of("shop_of_a_test.memory")) == {
        Library("json", ()),
        Library("redis.asyncio", ("Redis",)),
        Library("orjson", ()),
        Library("not_installed", ()),
        Library("sqlite3", ()),
        Library("os.path", ()),
    }
    assert libraries_of("not_installed.memory") == []
    assert is_own("beside_the_shop", "shop_of_a_test.memory")
    assert not is_own("redis", "shop_of_a_test.memory")
    assert not is_own("pytest", "redis.client"), "both are installed"


def test_only_our_own_store_needs_what_migrates_postgresql() -> None:
    assert "alembic.command" in imports_of("postgres", "postgres@16")
    assert "alembic.command" not in imports_of("app.memory:make", "postgres")
    assert imports_of("app.memory:make", "valkey-cluster") == ("app.memory:", "recollect.stores.redis.store")
    assert imports_of("chroma", "chroma") == ()


def test_what_a_factory_imports_is_imported_before_the_workers_are_forked() -> None:
    assert imports_of("adk.redis", "redis")[:2] == (
        "recollect.verify.named.adk",
        "google.adk.integrations.redis",
    )
