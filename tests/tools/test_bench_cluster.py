"""The benchmark of the cluster: a contender that fails now and then while it connects does not end it."""

import importlib
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent.parent


class Contender:
    """One of its commands fails in each of the first `failing` clients."""

    made: list["Contender"]

    def __init__(self, failing: int) -> None:
        self.fails = len(self.made) < failing
        self.is_closed = False
        self.made.append(self)

    async def rpush(self, name: str, value: str) -> int:
        if self.fails and name == "raw-3":
            raise AttributeError("'NoneType' object has no attribute 'connect'")
        return 1

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PROJECT / "bench")
    monkeypatch.setattr(Contender, "made", [], raising=False)
    return importlib.import_module("cluster")


async def test_a_contender_that_cannot_connect_at_first_is_made_again(bench: Any) -> None:
    client = await bench.connected(lambda: Contender(failing=2))
    assert [one.is_closed for one in Contender.made] == [True, True, False]
    assert client is Contender.made[-1]


async def test_a_contender_that_never_connects_ends_it_with_its_own_error(bench: Any) -> None:
    with pytest.raises(AttributeError, match="'connect'"):
        await bench.connected(lambda: Contender(failing=1000))
    assert [one.is_closed for one in Contender.made] == [True] * bench.CONNECTS_MAX
