"""A wheel in a folder of root's own: its PostgreSQL runs as `nobody`, who may not go there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.verify import providers
from recollect.verify.engines import EngineError, EngineOptions, postgres_programs
from recollect.verify.engines.postgres import PostgresEngine
from recollect.verify.host import folder
from recollect.verify.providers.build import Build

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's PostgreSQL runs as another user")


@pytest.fixture
def closed_wheel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """As `pip install` of somebody with umask 077 leaves it in a folder of root's own."""
    build = providers.find("postgres@18", "wheel")
    installation, package, site = Path(build.location).parents[1:4]
    made = folder.subfolder("home")
    made.chmod(0o711)
    monkeypatch.setattr(postgres_programs, "SHARED", made / "shared")
    closed = made / "root"
    for part in (installation, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, closed / part.relative_to(site), symlinks=True)
    for above, _, files in os.walk(closed):
        Path(above).chmod(0o700)
        for name in files:
            (Path(above) / name).chmod(0o700)
    yield replace(build, location=str(closed / Path(build.location).relative_to(site)))
    folder.discard(made)


def test_a_wheel_where_nobody_may_go_is_copied_once(closed_wheel: Build) -> None:
    copied = postgres_programs.programs_of(closed_wheel)
    assert copied.is_relative_to(postgres_programs.SHARED)
    postgres_programs._copied.cache_clear()
    assert postgres_programs.programs_of(closed_wheel) == copied
    assert len(list(postgres_programs.SHARED.iterdir())) == 1

    engine = PostgresEngine(closed_wheel, EngineOptions())
    with closing(engine):
        engine.start()
        assert engine.ask("SELECT current_setting('server_version_num')::int / 10000") == [("18",)]
    assert engine.build.location == closed_wheel.location, "what is shown is where it is installed"


def test_another_installation_is_left_where_it_is(closed_wheel: Build) -> None:
    with pytest.raises(EngineError, match="as root, PostgreSQL runs as 'nobody', who may not enter"):
        postgres_programs.programs_of(replace(closed_wheel, provider="system"))
