"""What a PostgreSQL leaves behind: its data folder is used again, its shared memory is gone."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

from recollect.verify import engines
from recollect.verify.engines import postgres_cluster as cluster
from recollect.verify.engines.postgres import PostgresEngine, _listed_in, _shared_segments
from recollect.verify.host.waiting import wait_until


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


def test_a_killed_server_leaves_no_shared_memory() -> None:
    engine = make()
    engine.start()
    assert engine._process is not None
    (control,) = _shared_segments(engine._process.pid)

    def made_later() -> list[Path]:
        return [segment for segment in _listed_in(control) if segment.exists()]

    wait_until(lambda: bool(made_later()), 10.0, "its processes made no segment of their own")
    segments = made_later()
    engine.kill()
    assert not control.exists()
    assert not any(segment.exists() for segment in segments)
    engine.close()
