"""Long-term memory and the chat's handlers in every order: a race that is put in is found, and as they are they hold.

All programs, engines and ways are in tests/interleavings/cells.py, and bench/interleavings.py runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interleavings.cells import IN_THREADS, Cell

SECONDS = 120.0
"""A deadline for a machine with other work."""
TWICE = ("i | i",)
"""The same turn from two callers."""


@pytest.mark.parametrize("planted", ["our_own:two_summarisers", "our_own:chat_looks_first"])
def test_a_race_is_found(planted: str, tmp_path: Path) -> None:
    cell = Cell(planted, "sqlite", "tasks", policy=IN_THREADS)
    found = cell.explore(tmp_path, SECONDS, programs=TWICE).found
    assert found.status == "violated", found.reason
    assert found.failure is not None
    assert found.failure.names == ("duplicate",)


@pytest.mark.parametrize("ours", ["our_own:summarised", "our_own:chat"])
def test_ours_hold(ours: str, tmp_path: Path) -> None:
    cell = Cell(ours, "sqlite", "tasks", policy=IN_THREADS)
    found = cell.explore(tmp_path, 4.0, programs=TWICE).found
    assert found.failure is None, found.failure
    assert found.trouble is None
    assert found.programs[0].judged
    assert found.programs[0].diverged == 0


def test_threads_of_its_own_are_told_and_do_not_get_in_the_way(tmp_path: Path) -> None:
    """Our synchronous stores work in a thread of their own: what it does is out of sight, but the same each time."""
    found = Cell("our_own:sync_sqlite", "sqlite", "threads").explore(tmp_path, 3.0, programs=("a | a",)).found
    assert found.failure is None, found.failure
    assert found.status == "unknown"
    assert found.reason is not None
    assert "threads of its own" in found.reason
    assert found.programs[0].judged
    assert found.programs[0].diverged == 0
