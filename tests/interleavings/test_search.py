"""The search, on little machines whose every order can be listed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from recollect.verify.explore.interleavings.search import (
    ByPreemptions,
    Choice,
    Diverged,
    Redundant,
    Replay,
    SleepSets,
    Strategy,
)

Machine = Sequence[Sequence[tuple[str, bool]]]
"""For each client its steps, in order: the place that each touches, and whether it writes there."""


def run(machine: Machine, strategy: Strategy) -> str:
    """The order in which the steps happened."""
    done = [0] * len(machine)
    last, order = "", ""
    while True:
        able = [client for client, steps in enumerate(machine) if done[client] < len(steps)]
        if not able:
            return order
        choices = [Choice("ABC"[c], "ABC"[c], f"{'ABC'[c]}:{done[c]}") for c in able]
        index = strategy.pick(choices, last)
        client = able[index]
        strategy.did(frozenset({machine[client][done[client]]}))
        done[client] += 1
        last = "ABC"[client]
        order += last


def explored(machine: Machine, strategy: Strategy) -> tuple[list[str], int]:
    found, redundant = [], 0
    while strategy.start():
        try:
            found.append(run(machine, strategy))
        except Redundant:
            redundant += 1
    return found, redundant


def outcome(machine: Machine, order: str) -> tuple[object, ...]:
    """All that anybody could tell: what each step read, and what is there at the end."""
    done = [0] * len(machine)
    places: dict[str, tuple[str, ...]] = {}
    seen: list[tuple[str, tuple[str, ...]]] = []
    for letter in order:
        client = "ABC".index(letter)
        place, write = machine[client][done[client]]
        seen.append((f"{letter}{done[client]}", places.get(place, ())))
        if write:
            places[place] = (*places.get(place, ()), f"{letter}{done[client]}")
        done[client] += 1
    return tuple(sorted(seen)), tuple(sorted(places.items()))


def all_orders(machine: Machine) -> set[str]:
    letters = "".join("ABC"[client] * len(steps) for client, steps in enumerate(machine))
    return {"".join(order) for order in itertools.permutations(letters)}


def machines(seed: int) -> Machine:
    dice = random.Random(seed)
    clients = dice.choice((2, 2, 3))
    return [
        [(dice.choice("xyz"), dice.random() < 0.6) for _ in range(dice.randint(1, 3 if clients == 2 else 2))]
        for _ in range(clients)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_sleep_sets_miss_no_outcome_and_repeat_no_order(seed: int) -> None:
    machine = machines(seed)
    found, _ = explored(machine, SleepSets())
    wanted = {outcome(machine, order) for order in all_orders(machine)}
    assert {outcome(machine, order) for order in found} == wanted
    assert len(found) == len(wanted), "two orders that nobody can tell apart were both run"


def test_independent_clients_have_one_order() -> None:
    found, _ = explored([[("x", True)] * 3, [("y", True)] * 3], SleepSets())
    assert len(found) == 1


def test_a_bound_is_kept_and_everything_under_it_is_run() -> None:
    machine = [[("x", True)] * 3, [("x", True)] * 3]
    strategy = ByPreemptions(0)
    none, _ = explored(machine, strategy)
    strategy.bound = 1
    one, _ = explored(machine, strategy)
    strategy.bound = 9
    more, _ = explored(machine, strategy)
    assert sorted(none) == ["AAABBB", "BBBAAA"]
    assert all(_preemptions(order) == 1 for order in one)
    assert len({*none, *one, *more}) == len([*none, *one, *more]) == len(all_orders(machine))


def _preemptions(order: str) -> int:
    return sum(
        left != right and left in order[place + 1 :]
        for place, (left, right) in enumerate(itertools.pairwise(order))
    )


@pytest.mark.parametrize("make", [lambda: ByPreemptions(2), SleepSets])
def test_a_run_that_came_to_nothing_is_run_again(make: type[SleepSets]) -> None:
    machine = [[("x", True)] * 2, [("x", True)] * 2]
    plain, _ = explored(machine, make())
    strategy, found = make(), []
    for number in itertools.count():
        if not strategy.start():
            break
        order = run(machine, strategy)
        if number % 2:
            found.append(order)
        else:
            strategy.again()
    assert found == plain


def test_a_prefix_that_leads_elsewhere_is_noticed() -> None:
    strategy = ByPreemptions(1)
    assert strategy.start()
    run([[("x", True)], [("x", True)]], strategy)
    assert strategy.start()
    with pytest.raises(Diverged):
        run([[("x", True)], []], strategy)


def test_a_string_is_a_schedule() -> None:
    machine = [[("x", True)] * 2, [("x", True)] * 2]
    strategy = Replay("ABB")
    assert strategy.start()
    assert run(machine, strategy) == "ABBA"
    unfit = Replay("AC")
    assert unfit.start()
    with pytest.raises(Diverged, match="C"):
        run(machine, unfit)
