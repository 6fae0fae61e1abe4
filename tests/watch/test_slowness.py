"""When acknowledgements are called slow: several in a row, not one."""

from dataclasses import replace
from pathlib import Path

import pytest

from recollect.watch.canary import CanaryAppend
from recollect.watch.slowness import AckWait, Slowness
from tests.watch.beside import Beside, beside


def slowness_of(*took_s: float) -> Slowness:
    slowness = Slowness()
    for one_s in took_s:
        slowness.note(AckWait(one_s), 1.0)
    return slowness


@pytest.mark.parametrize("took_s", [(0.1,), (4.9,), (1.2, 1.2), (1.2, 1.2, 0.2, 1.2), (4.9, 0.9, 4.9)])
def test_not_slow(took_s: tuple[float, ...]) -> None:
    assert not slowness_of(*took_s).is_slow(1.0)


@pytest.mark.parametrize("took_s", [(1.1, 1.1, 1.1), (1.5, 1.5), (4.9, 1.1), (0.1, 2.0, 2.0)])
def test_slow(took_s: tuple[float, ...]) -> None:
    assert slowness_of(*took_s).is_slow(1.0)


@pytest.mark.parametrize("took_s", [(1.1,), (1.1, 1.1), (2.5,), (4.9,)])
def test_the_next_one_that_is_waited_for_makes_it_certain(took_s: tuple[float, ...]) -> None:
    slowness = slowness_of(*took_s)
    while not slowness.is_slow(1.0):
        slowness.note(AckWait(slowness.missing_s(1.0), answered=False), 1.0)
        assert len(slowness.slow) <= 3


def test_what_was_measured_is_said() -> None:
    slowness = slowness_of(0.004, 0.006, 0.005, 1.4, 1.25)
    slowness.note(AckWait(1.01, answered=False), 1.0)
    assert slowness.sentence(1.0, "fsynced", 0.002) == (
        "3 fsynced acknowledgements in a row took 1.40 s, 1.25 s, more than 1.01 s; 1 s are fine; "
        "0.005 s was usual; a read took 0.002 s"
    )


async def rounds(watched: Beside, *took_s: float) -> tuple[list[str], int]:
    """One round in which the acknowledgements take this long, the last one for ever after; and how many it took."""
    left, speak, count = list(took_s), watched.canary.speak, 0

    async def timed(limit_s: float | None = None) -> CanaryAppend:
        nonlocal count
        count += 1
        return replace(await speak(), took_s=left.pop(0) if len(left) > 1 else left[0])

    watched.canary.speak = timed  # type: ignore[method-assign]
    try:
        return await watched.rounds(1), count
    finally:
        watched.canary.speak = speak  # type: ignore[method-assign]


async def test_a_slow_one_is_followed_by_others_at_once(tmp_path: Path) -> None:
    async with beside(f"sqlite:///{tmp_path}/memory.db", tmp_path / "watch.db") as watched:
        watched.watch.slow_s = 1.0
        assert await rounds(watched, 4.0, 0.01) == ([], 2)
        assert await rounds(watched, 1.2, 1.2, 0.01) == ([], 3)
        assert watched.watch.metrics.slow == 3
        assert await rounds(watched, 1.2) == (["slow"], 3)
        assert await rounds(watched, 1.2) == ([], 1)  # it lasts: told once
        assert await rounds(watched, 0.01) == ([], 1)
        assert watched.events[-1].items() >= {"event": "over", "name": "slow"}.items()
