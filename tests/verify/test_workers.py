"""What workers import is imported once, in the process they are forked from; also when the next cell needs more."""

import subprocess
import sys
from pathlib import Path

from recollect.verify.target.registry import imports_of

STORE = """
import os, pathlib
with open(pathlib.Path(__file__).with_suffix(".pids"), "a") as pids:
    pids.write(f"{os.getpid()}\\n")
class Store:
    def append_message(self, session, message): ...
    def get_messages(self, session): return []
def make(endpoint): return Store()
"""
THREAD = """
import threading
threading.Thread(target=threading.Event().wait).start()
"""
TWO_CELLS = """
from pathlib import Path
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.target.workers import Workers

named = {"engine": "redis", "product": "Redis", "version": "7", "policy": "none", "provider": "system"}
endpoint = Endpoint(url="redis://127.0.0.1:1/0", **named)
for name in ("first", "second"):
    workers = Workers(Path(name + ".log"), (name,))
    for _ in range(3):
        workers.start(f"{name}:make", endpoint)
    workers.close_all()
"""


def test_a_second_cell_has_its_modules_imported_once_too(tmp_path: Path) -> None:
    """Also after a module with a thread that never ends, which no process that imported it outlives by itself."""
    (tmp_path / "first.py").write_text(STORE + THREAD)
    (tmp_path / "second.py").write_text(STORE)
    done = subprocess.run(
        [sys.executable, "-c", TWO_CELLS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "first.pids").read_text().split()
    second = (tmp_path / "second.pids").read_text().split()
    assert len(second) == 1
    assert len(first) == 2, "by the fork server, and by the one after it"


def test_only_our_own_store_needs_what_migrates_postgresql() -> None:
    assert "alembic.command" in imports_of("postgres", "postgres@16")
    assert "alembic.command" not in imports_of("app.memory:make", "postgres")
    assert imports_of("app.memory:make", "valkey-cluster") == ("app.memory", "recollect.stores.redis.store")
    assert imports_of("chroma", "chroma") == ()


def test_what_a_factory_imports_is_imported_before_the_workers_are_forked() -> None:
    assert imports_of("adk.redis", "redis")[:2] == (
        "recollect.verify.named.adk",
        "google.adk.integrations.redis",
    )
