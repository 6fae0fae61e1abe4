"""What a machine with other work does to threads is not the store's doing."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from recollect.verify.explore.interleavings import other_threads, threads
from recollect.verify.explore.interleavings.explorer import Explorer
from recollect.verify.explore.interleavings.results import InterleavingsAsked, InterleavingsFound

STORE = "tests.interleavings.planted.with_threads:OneLock"


def explored(folder: Path, store: str = STORE) -> InterleavingsFound:
    asked = InterleavingsAsked(
        target=store, engine="sqlite", how="threads", programs=("a | a",), seconds=1.0, folder=str(folder)
    )
    explorer = Explorer(asked)
    try:
        return explorer.explore()
    finally:
        explorer.close()


def test_a_client_whose_thread_ends_late_is_no_thread_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = other_threads.native_threads, set[str]()

    def with_those_that_ended() -> set[str]:
        seen.update(real())
        return set(seen)

    monkeypatch.setattr(threads, "native_threads", with_those_that_ended)
    found = explored(tmp_path)
    assert found.programs[0].judged > 1
    assert found.unseen is None


def test_time_in_which_nobody_looked_makes_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole machine stood still for a minute: by the clock, the store has had all the time it needs."""
    readings = itertools.chain([0.0, 0.0], itertools.repeat(60.0))
    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: next(readings)))
    monkeypatch.setattr(threads, "BLOCKED_AFTER_S", 0.0)
    monkeypatch.setattr(threads, "CALM_MIN", 10**9)
    found = explored(tmp_path)
    assert found.programs[0].judged
    assert found.failure is None
