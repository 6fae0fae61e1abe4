"""The commands of the pages are run, as they are written, beside what their text takes for granted.

With RECOLLECT_FULL_DOCS=1 those that take minutes are run too, have the time that the page gives them, and must
succeed. README's gets a budget of a second here, and must be understood, start, and end as commands do.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from recollect import Message
from recollect.cli import build
from recollect.sync import open_store
from recollect.verify.engines import Engine
from recollect.verify.providers.server_address import postgres_address
from recollect.verify.wire import pgwire
from tests.docs.blocks import ALL, ELSEWHERE, NIGHTLY, NOT_HERE, PROJECT, python_of
from tests.stores.redis_places import started

FULL = "RECOLLECT_FULL_DOCS" in os.environ
OTHER_TEST = (*ELSEWHERE, "docs/doctor.md", "docs/reports.md", "docs/verdicts.md")
"""`test_report_docs.py` runs the last three."""
LONG = ("recollect verify ", "recollect explore ")
"""`test_docs.py` checks their options; here only README's is run, unless all are."""
OF_A_TARGET = ("verify", "explore", "replay", "init", "audit")
"""They import what a reader has, so they are processes of their own."""
SAVED_RUN = re.compile(r"^runs/\d{8}-\d{6}-seed\d+(/\S+)?$")

GOOD = python_of("docs/tutorial.md")[-1]
"""A store that holds."""
FINDS = {"docs/interleavings.md": {1}, "docs/power-loss.md": {0, 1}}
"""Exit codes of the pages whose store has a bug."""
HOLDS = "recollect explore myapp.memory:Store "
"""The bug that the page shows was in redis-py 4.5.1: tests/interleavings/test_incident.py. With today's it holds."""


def _commands() -> list[tuple[str, str]]:
    found = [(block.page, command) for block in ALL for command in block.commands]
    once = {command: page for page, command in reversed(found) if page not in OTHER_TEST}
    return [(page, command) for command, page in once.items() if command not in NOT_HERE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has: a package with a store, the release before, a configuration, a list of sessions."""
    folder = tmp_path_factory.mktemp("reader")
    for package in ("myapp", "shop", "old_release"):
        (folder / package).mkdir()
        (folder / package / "memory.py").write_text(GOOD)
    (folder / "memory_target.py").write_text("from shop.memory import make_store\n")
    (folder / "deploy").mkdir()
    (folder / "deploy" / "redis.conf").write_text("appendonly yes\nappendfsync always\n")
    (folder / "docker-compose.yml").write_text("services: {db: {image: postgres}, cache: {image: redis}}")
    with open_store(f"sqlite:///{folder}/memory.db") as store:
        for name in ("alice", "bob", "carol"):
            store.append(name, [Message("user", "one")])
            store.append(
                name, [Message("user", "two"), Message("assistant", "three"), Message("user", "four")]
            )
    return folder


@pytest.fixture(scope="module")
def saved_run(folder: Path) -> str:
    """Relative to the folder."""
    words = (
        "verify memory_target:make_store --engine redis --policy aof-always --fault none --variant one-writer"
    )
    code, said = _subprocess([*words.split(), "--workload", "append", "--out", "runs/saved"], folder)
    assert code == 0, said
    return "runs/saved"


@pytest.mark.parametrize(("page", "command"), _commands())
def test_command(page: str, command: str, folder: Path, request: pytest.FixtureRequest) -> None:
    if not FULL and (command.startswith(NIGHTLY) or (page != "README.md" and command.startswith(LONG))):
        pytest.skip("set RECOLLECT_FULL_DOCS=1: minutes")
    request.getfixturevalue("monkeypatch").chdir(folder)
    _prepare(page, command, folder, request)
    words = [_live(word, request) for word in shlex.split(command)[1:]]
    words += [] if FULL else _in_a_hurry(words)
    code, said = (_subprocess if words[0] in OF_A_TARGET else _invoke)(words, folder)
    found = {0} if command.startswith(HOLDS) else FINDS.get(page, {0})
    # Nothing is concluded where there is no daemon, or not that image.
    allowed = (
        found
        | (set() if FULL and "compose:" not in command else {3})
        | ({1} if "--require" in words else set())
    )
    assert code in allowed, f"{command}\n{said}"
    assert "Traceback" not in said


def _in_a_hurry(words: list[str]) -> list[str]:
    if "--interleavings" in words:
        return ["--seconds", "1"]
    if words[0] == "explore":
        return ["--messages", "2", "--budget", "20s"]
    quick = {"verify": ["--budget", "1s", "--no-confirm", "--workers", "1"], "replay": ["--times", "1"]}
    return ["--for", "1s"] if "--for" in words else quick.get(words[0], [])


def _prepare(page: str, command: str, folder: Path, request: pytest.FixtureRequest) -> None:
    """What the page has done before, or says that it has."""
    store = folder / "myapp" / "memory.py"
    store.write_text(GOOD)
    if page == "docs/interleavings.md":
        _write_interleaved(store, "postgres" if "--engine postgres" in command else "redis")
    elif page == "docs/power-loss.md" and "--engine sqlite" in command:
        store.write_text("from tests.faults.line_files import hasty as make_store\n")
    if "--data backup/dump.rdb" in command:
        _write_dump(folder)
    if "--sessions ids.txt" in command:
        (folder / "ids.txt").write_text("user-42\n")
        with redis.Redis.from_url(_engine(request, "redis").endpoint.url) as client:
            client.rpush("memory:user-42", '{"role": "user", "content": "hello"}')
    if "memory.jsonl" in command and "export" not in command:
        _invoke(["export", "sqlite:///memory.db", ">", "memory.jsonl"], folder)
    if command.startswith("recollect report memory-runs/1"):
        words = "verify shop.memory:make_store --engine redis --full --shard"
        for number in range(1, 5):
            _subprocess([*words.split(), f"{number}/4", "--out", f"memory-runs/{number}"], folder)
    if command.startswith("recollect audit redis+"):
        with open_store(_live(command.split()[2], request)) as group:
            group.append("alice", [Message("user", "hello")])


BROKEN = {
    "redis": "redis_tasks import OneValue",
    "postgres": "postgres_tasks import prepare, max_then_insert",
}


def _write_interleaved(store: Path, engine: str) -> None:
    """The store of the page, and one with the bug whose report it shows before."""
    (shown,) = python_of("docs/interleavings.md")
    store.write_text(
        "import json\n\nimport redis.asyncio\n\n"
        f"from tests.interleavings.planted.{BROKEN[engine]} as make_store\n\n\n"
        "def encode(message):\n    return json.dumps({'role': message.role, 'content': message.text})\n\n\n"
        f"decode = json.loads\n\n\n{shown}"
    )


def _write_dump(folder: Path) -> None:
    (folder / "backup").mkdir(exist_ok=True)
    (expected,) = [block for block in ALL if block.page == "docs/older-data.md" and block.language == "json"]
    (folder / "sessions.jsonl").write_text(expected.text)
    session = json.loads(expected.text)
    with started("redis@7", "rdb") as engine, redis.Redis.from_url(engine.endpoint.url) as client:
        for message in session["messages"]:
            client.rpush(f"memory:{session['session']}", json.dumps(message))
        client.save()
        assert engine.data is not None
        shutil.copy(engine.data / "dump.rdb", folder / "backup")


def _engine(request: pytest.FixtureRequest, name: str) -> Engine:
    engine: Engine = request.getfixturevalue("engine_of")(name)
    return engine


def _live(word: str, request: pytest.FixtureRequest) -> str:
    """With addresses where somebody answers, and runs that are there."""
    if word.startswith("redis+"):
        return _engine(request, word.partition(":")[0].replace("+", "-")).endpoint.url
    if word.startswith("redis://localhost"):
        return _engine(request, "redis").endpoint.url
    if word.startswith("postgresql://localhost"):
        url = _engine(request, "postgres").endpoint.url
        schema = f"docs{uuid.uuid4().hex}"
        with pgwire.Connection(postgres_address(url)) as session:
            session.ask(f"CREATE SCHEMA {schema}")
        return f"{url}?search_path={schema}"
    if run := SAVED_RUN.match(word):
        saved: str = request.getfixturevalue("saved_run")
        return saved if run[1] is None else str(next(Path(saved).glob("000-*")))
    return word


def _invoke(words: list[str], folder: Path) -> tuple[int, str]:
    into = words[-1] if ">" in words else None
    words = words[: words.index(">")] if into else words
    done = CliRunner().invoke(build(words), words)
    if into:
        (folder / into).write_text(done.stdout)
    return done.exit_code, done.output


def _subprocess(words: list[str], folder: Path) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "COLUMNS": "120"}
    command = [sys.executable, "-m", "recollect", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_audit_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "112")
    with open_store("sqlite:///memory.db") as store:
        for name, sizes in {"alice": (3, 3), "bob": (4,), "carol": (3,)}.items():
            for turn, size in enumerate(sizes):
                store.append(name, [Message("user", "hello")] * size, turn=f"turn-{turn}")
    with closing(sqlite3.connect("memory.db", isolation_level=None)) as somebody:
        ((number,),) = somebody.execute("SELECT id FROM recollect_sessions WHERE key = ?", (b"alice",))
        somebody.execute("DELETE FROM recollect_messages WHERE place = ?", ((number << 32) + 5,))
    words = ["audit", "sqlite:///memory.db", "--html", "audit.html"]
    code, said = _invoke(words, tmp_path)
    (shown,) = [block.text for block in ALL if block.beginning.startswith("sqlite at sqlite:///memory.db")]
    assert code == 1
    assert _without_figures(said) == _without_figures(shown)


def _without_figures(text: str) -> list[str]:
    return [line for line in " ".join(text.split()).replace(" s ", " ").split() if not line[0].isdigit()]


def test_the_order_of_the_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of its report is a command; it shows the report again."""
    monkeypatch.chdir(folder)
    _write_interleaved(folder / "myapp" / "memory.py", "redis")
    (shown,) = [
        block.text for block in ALL if block.beginning == "myapp.memory:make_store on redis, tasks: violated"
    ]
    again = shown.splitlines()[-1].split(maxsplit=1)[1]
    code, said = _subprocess(shlex.split(again), folder)
    assert code == 1, said
    drawing, drawn = _drawing(shown), _drawing(said)
    assert drawing
    assert drawn == drawing


def _drawing(report: str) -> list[list[str]]:
    """The columns, whatever their width, down to what was read afterwards."""
    lines = report[report.index("\nA   ") :].partition("\n\n")[0].partition("\nIts history")[0].splitlines()
    return [line.replace("─", "").split() for line in lines]
