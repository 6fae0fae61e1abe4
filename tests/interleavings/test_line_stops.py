"""A thread stops at the lines of the files it is told, and nowhere else, however the interpreter tells us."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from recollect.verify.explore.interleavings.line_stops import ByTracing, LineStops, line_stops

OTHERS = "elsewhere.py"


def _watched(number: int) -> None:
    doubled = number * 2
    _aside(doubled)


exec(compile("def _aside(number):\n    number += 1\n    return number\n", OTHERS, "exec"))
_aside = globals()["_aside"]
FIRST = _watched.__code__.co_firstlineno


@pytest.fixture(params=["the usual way", "by tracing"])
def stops(request: pytest.FixtureRequest) -> Iterator[LineStops]:
    made: LineStops = ByTracing({__file__}) if request.param == "by tracing" else line_stops({__file__})
    yield made
    made.close()


def test_each_line_once_and_only_in_these_files(stops: LineStops) -> None:
    seen: list[tuple[str, int]] = []
    before = sys.gettrace()
    with stops.watching(lambda file, line: seen.append((file, line))):
        _watched(1)
    sys.settrace(before)
    _watched(2)
    lines = [line for file, line in seen if FIRST < line < FIRST + 3]
    assert lines == [FIRST + 1, FIRST + 2]
    assert {file for file, _ in seen} == {__file__}


def test_other_threads_are_not_stopped(stops: LineStops) -> None:
    seen: list[int] = []
    before = sys.gettrace()
    with stops.watching(lambda file, line: seen.append(threading.get_ident())):
        other = threading.Thread(target=_watched, args=(1,))
        other.start()
        other.join()
    sys.settrace(before)
    assert set(seen) <= {threading.get_ident()}


def test_what_it_raises_ends_the_call(stops: LineStops) -> None:
    def stop(file: str, line: int) -> None:
        if line == FIRST + 2:
            raise KeyError(line)

    before = sys.gettrace()
    with pytest.raises(KeyError), stops.watching(stop):
        _watched(1)
    sys.settrace(before)
