"""`make sanitize` finds what it is for: a race and a bad access that were planted, and nothing in what is shipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.verify.disk import building
from tests.disk import stress
from tools import sanitize

pytestmark = pytest.mark.skipif("RECOLLECT_FULL_TOOLS" not in os.environ, reason="set RECOLLECT_FULL_TOOLS=1")

MEMORY, THREADS = sanitize.SANITIZERS
LOCKED = """    sigset_t before = hold(LOCK_MAPPINGS);
    put(mapping);
    let_go(LOCK_MAPPINGS, before);
"""
PLANTED = {
    "race": (THREADS, "memory.c", LOCKED, "    put(mapping);\n", "data race"),
    "access": (MEMORY, "unseen.c", "i + 8 <= n; i += 8", "i <= n; i += 8", "AddressSanitizer"),
    "shift": (MEMORY, "track.c", "mixed >> 29", "mixed >> (64 + (seen->ino & 1))", "runtime error"),
}


@pytest.fixture
def built(tmp_path: Path) -> Callable[[sanitize.Sanitizer, Path], sanitize.Built]:
    def build(sanitizer: sanitize.Sanitizer, sources: Path) -> sanitize.Built:
        try:
            return sanitize.Built(sanitizer, tmp_path, {"shim": sources})
        except sanitize.Unavailable as reason:
            pytest.skip(str(reason))

    return build


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(
    tmp_path: Path,
    built: Callable[[sanitize.Sanitizer, Path], sanitize.Built],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stress, "TIMEOUT_S", 20.0)  # a child forked in the midst of a report hangs
    sanitizer, file, right, wrong, said = PLANTED[name]
    sources = tmp_path / "sources"
    shutil.copytree(building.SOURCES, sources)
    text = (sources / file).read_text()
    assert right in text, "the planted mistake has lost its place"
    (sources / file).write_text(text.replace(right, wrong))
    report = sanitize.recorder_found(built(sanitizer, sources), "fork", 60)
    assert said in report


@pytest.mark.parametrize("sanitizer", sanitize.SANITIZERS, ids=lambda sanitizer: str(sanitizer.title))
def test_what_is_shipped_is_clean(
    built: Callable[[sanitize.Sanitizer, Path], sanitize.Built], sanitizer: sanitize.Sanitizer
) -> None:
    made = built(sanitizer, building.SOURCES)
    assert made.explained(sanitize.recorder_found(made, "fork", 20)) == ""
    assert made.explained(sanitize.recorder_found(made, "signal", 20)) == ""
