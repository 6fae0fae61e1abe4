"""What a PostgreSQL leaves behind: its data folder is used again, its shared memory is gone."""

from __future__ import annotations

import ctypes
import filecmp
import os
import pickle
import secrets
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from recollect.verify import engines
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host import folder, processes, warden
from recollect.verify.host.waiting import wait_until


def make(spec: str = "postgres") -> PostgresEngine:
    engine = engines.create(spec)
    assert isinstance(engine, PostgresEngine)
    return engine


def files(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for above, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(above, name)
            status = path.stat()
            found[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid)
    return found


def test_the_next_cluster_is_made_of_the_last_ones_folder_and_equals_the_template() -> None:
    first = make()
    first.start()
    first.ask("CREATE TABLE secrets AS SELECT generate_series(1, 50000) AS number")
    first.ask("CREATE DATABASE other")
    first.kill()
    assert first.data is not None
    (first.data / "PG_VERSION").touch()
    (first.data / "pg_xact" / "0000").unlink()
    (first.data / "pg_notify").rmdir() if not any((first.data / "pg_notify").iterdir()) else None
    inode = first.data.stat().st_ino
    first.close()

    second = make()
    second.prepare()
    assert second.data is not None
    assert second.data.stat().st_ino == inode, "nothing was used again"
    template = cluster._template(second.programs, second.version)
    assert files(second.data) == files(template)
    names = [name for name in files(template) if (template / name).is_file()]
    assert filecmp.cmpfiles(template, second.data, names, shallow=False)[1:] == ([], [])
    second.start()
    assert second.ask("SELECT count(*) FROM pg_class WHERE relname = 'secrets'") == [("0",)]
    second.close()


class Shared:
    """The shared memory of a running server, looked at from outside."""

    def __init__(self, engine: PostgresEngine) -> None:
        found = warden.shared_memory_of([engine.pid])
        self._numbers = {int(place) for place in found if place.isdigit()}
        (self._control,) = (Path(place) for place in found if not place.isdigit())
        assert self._numbers, "PostgreSQL has a System V segment"
        wait_until(lambda: len(self._named()) > 1, 10.0, "its processes made no segment of their own")
        self._paths = self._named()

    def left(self) -> list[int | Path]:
        kept = {int(line.split()[1]) for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
        return [*(self._numbers & kept), *(path for path in self._paths if path.exists())]

    def _named(self) -> list[Path]:
        """Whatever number in the first segment is the name of another, wherever it stands."""
        raw = self._control.read_bytes()
        numbers = set(memoryview(raw[: len(raw) & ~3]).cast("I"))
        return [path for number in numbers if (path := Path(f"/dev/shm/PostgreSQL.{number}")).exists()] + [
            self._control
        ]


@pytest.fixture
def other() -> Iterator[tuple[PostgresEngine, Shared]]:
    """Another server on this machine, which has its own."""
    engine = make()
    engine.start()
    yield engine, Shared(engine)
    engine.close()


def untouched(other: tuple[PostgresEngine, Shared]) -> bool:
    engine, shared = other
    return len(shared.left()) > 2 and engine.ask("SELECT 1") == [("1",)]


@pytest.mark.parametrize("version", ["15", "16", "18"])
def test_a_killed_server_leaves_no_shared_memory(version: str, other: tuple[PostgresEngine, Shared]) -> None:
    engine = make(f"postgres@{version}")
    engine.start()
    shared = Shared(engine)
    assert len(shared.left()) > 2
    engine.kill()
    assert shared.left() == []
    engine.close()
    assert untouched(other)


def test_a_server_that_was_killed_by_somebody_else_leaves_no_shared_memory(
    other: tuple[PostgresEngine, Shared],
) -> None:
    """The recorder kills from inside: when the warden hears of it, nobody can be asked any more what it had."""
    engine = make()
    engine.start()
    shared = Shared(engine)
    for pid in [engine.pid, *warden.descendants_of(engine.pid)]:
        with suppress(ProcessLookupError):  # the children go with their server
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not engine.alive(), 10.0, "the server did not die")
    engine.kill()
    assert shared.left() == []
    engine.close()
    assert untouched(other)


@pytest.mark.parametrize("victims", ["runner", "warden and runner"])
def test_a_killed_runner_leaves_no_shared_memory(victims: str, other: tuple[PostgresEngine, Shared]) -> None:
    read_end, write_end = os.pipe()
    runner = os.fork()
    if runner == 0:
        try:
            engine = make()
            engine.start()
            os.write(write_end, pickle.dumps(Shared(engine)))
            if victims != "runner":
                os.kill(processes.warden_pid(), signal.SIGKILL)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as said:
        shared = pickle.loads(said.read())
    os.waitpid(runner, 0)

    def gone() -> bool:
        if victims != "runner":
            folder.sweep()  # what the next run begins with
        return not shared.left()

    wait_until(gone, 30.0, "it was not removed")
    assert untouched(other)


def test_what_is_not_the_same_any_more_is_not_removed(tmp_path: Path) -> None:
    """The names and numbers of what is gone are given to others."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.shmget(0, 4096, 0o600 | 0o1000)
    named = Path(f"/dev/shm/PostgreSQL.{secrets.randbits(31) | 1}")
    named.write_bytes(b"of somebody else")
    try:
        truth = {place: warden._identity(place) for place in (str(number), str(named))}
        for place, identity in truth.items():
            assert identity is not None
            for field in range(len(identity)):
                changed = list(identity)
                changed[field] += 1
                warden.free({place: changed})
                assert warden._identity(place) == identity, f"field {field} of {place} was not looked at"
    finally:
        libc.shmctl(number, 0, None)
        named.unlink(missing_ok=True)


def test_a_first_segment_that_is_none_lists_no_others(tmp_path: Path) -> None:
    """Whatever is in it: no file may be named by chance."""
    raw = bytearray(struct.pack("=III4x", 0x9A503D32, 2, 64) + struct.pack("=II32x", 8, 1) * 2)
    control = tmp_path / "control"
    control.write_bytes(raw)
    assert warden._listed_in(str(control)) == ["/dev/shm/PostgreSQL.8"] * 2
    control.write_bytes(raw[:-20])
    assert warden._listed_in(str(control)) == ["/dev/shm/PostgreSQL.8"]
    for broken in (
        b"",
        bytes(raw[:7]),
        b"\0" * 100,
        struct.pack("=III4x", 0x9A503D32, 65, 64) + bytes(raw[16:]),
    ):
        control.write_bytes(broken)
        assert warden._listed_in(str(control)) == []
