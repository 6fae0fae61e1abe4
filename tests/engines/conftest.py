"""One engine per test, closed at its end; what it left behind is counted here, for every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.verify import engines, providers
from recollect.verify.engines.local import LocalServer
from recollect.verify.host.folder import processes_in

Create = Callable[..., Any]


@pytest.fixture
def create() -> Iterator[Create]:
    """`engines.create`, skipping with the reason where this machine has no such engine."""
    made: list[LocalServer] = []

    def make(spec: str, policy: str | None = None, **more: Any) -> Any:
        try:
            engine = engines.create(spec, policy, **more)
        except engines.NotInstalled as missing:
            pytest.skip(str(missing))
        made.append(engine)  # type: ignore[arg-type]
        return engine

    yield make
    for engine in made:
        engine.close()
        assert not engine.folder.exists()
        assert processes_in(engine.folder) == []


def need(*specs: str) -> None:
    """Skip, with the reason, where one of these is not installed."""
    for spec in specs:
        try:
            providers.find(spec)
        except engines.NotInstalled as missing:
            pytest.skip(str(missing))


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "own.conf"
        file.write_text(text)
        return file

    return write
