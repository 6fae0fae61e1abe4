"""The cancelled request that shows one user another user's conversation: in redis-py 4.5.1, and not in today's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.verify.explore.interleavings.results import (
    CONFIRMATIONS,
    InterleavingsAsked,
    InterleavingsFound,
)
from recollect.verify.explore.interleavings.telling import sentence
from recollect.verify.explore.interleavings.words import explore_interleavings
from tests.interleavings.cells import HERE

OLD = "redis==4.5.1"
PROGRAM = "a1 r1 | a r"
"""Two users, each with a conversation of their own."""


@pytest.fixture(scope="module")
def old_driver(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the old release, and nothing else."""
    folder = tmp_path_factory.mktemp("redis")
    uv = shutil.which("uv") or str(HERE / ".uv" / "bin" / "uv")
    words = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", str(folder), OLD]
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{OLD} cannot be installed here: {error}")
    return str(folder)


def explored(folder: Path, bound: int, *path: str) -> InterleavingsFound:
    return explore_interleavings(
        InterleavingsAsked(
            target="tests.interleavings.planted.incident:Store",
            engine="redis",
            how="tasks",
            programs=(PROGRAM,),
            cancel=True,
            seconds=180.0,
            bound=bound,
            folder=str(folder),
            path=(*path, str(HERE)),
            wanted="cross-session-leak" if path else "",
        )
    ).found


def test_the_old_driver_gives_one_user_the_answer_of_another(old_driver: str, tmp_path: Path) -> None:
    found = explored(tmp_path, 2, old_driver)
    failure = found.failure
    assert failure is not None, (found.status, found.reason)
    assert "cross-session-leak" in failure.names
    assert failure.confirmed == CONFIRMATIONS
    assert "was cancelled" in sentence(failure)


def test_the_driver_of_today_does_not(tmp_path: Path) -> None:
    found = explored(tmp_path, 1)
    assert found.status == "held", (found.reason, found.failure)
    assert found.programs[0].bound == 1
