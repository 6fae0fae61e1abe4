"""What a PostgreSQL leaves behind: its data folder is used again, its shared memory is gone."""

from __future__ import annotations

import filecmp
import os
import pickle
import signal
from pathlib import Path

from recollect.verify import engines
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host.waiting import wait_until
from recollect.verify.host.warden import _listed_in, _shared_memory_of


def make() -> PostgresEngine:
    engine = engines.create("postgres")
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
        assert engine._process is not None
        self._numbers, paths = _shared_memory_of([engine._process.pid])
        assert self._numbers, "PostgreSQL has a System V segment"
        (self._control,) = paths
        wait_until(lambda: len(self._named()) > 1, 10.0, "its processes made no segment of their own")
        self._paths = self._named()

    def left(self) -> list[int | str]:
        kept = {int(line.split()[1]) for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
        return [*(self._numbers & kept), *(path for path in self._paths if Path(path).exists())]

    def _named(self) -> list[str]:
        return [path for path in (*_listed_in(self._control), self._control) if Path(path).exists()]


def test_a_killed_server_leaves_no_shared_memory() -> None:
    engine = make()
    engine.start()
    shared = Shared(engine)
    assert len(shared.left()) > 2
    engine.kill()
    assert shared.left() == []
    engine.close()


def test_a_killed_runner_leaves_no_shared_memory() -> None:
    read_end, write_end = os.pipe()
    runner = os.fork()
    if runner == 0:
        try:
            engine = make()
            engine.start()
            os.write(write_end, pickle.dumps(Shared(engine)))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as said:
        shared = pickle.loads(said.read())
    os.waitpid(runner, 0)
    wait_until(lambda: shared.left() == [], 10.0, "the warden did not remove it")
