"""The search, on little machines whose every order can be listed."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest

from recollect.verify.explore.interleavings.footprints import NOTHING, Footprint
from recollect.verify.explore.interleavings.search import (
    ByPreemptions,
    Choice,
    Diverged,
    Redundant,
    Replay,
    Strategy,
)
from recollect.verify.explore.interleavings.source_sets import SourceSets

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
        strategy.did(frozenset({machine[client][done[client]]}) if strategy.reads_footprints else NOTHING)
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
def test_source_sets_miss_no_outcome_and_repeat_no_order(seed: int) -> None:
    machine = machines(seed)
    found, _ = explored(machine, SourceSets())
    wanted = {outcome(machine, order) for order in all_orders(machine)}
    assert {outcome(machine, order) for order in found} == wanted
    assert len(found) == len(wanted), "two orders that nobody can tell apart were both run"


# ---- machines with locks, and clients that do two things at once

Strand = tuple[str, Sequence[tuple[str, str]]]
"""A client, and its steps: `=x` writes a place, `?x` reads it, `+l` takes a lock, `-l` gives it back."""


class LockMachine:
    """Several strands may be one client's."""

    def __init__(self, strands: Sequence[Strand]) -> None:
        self.strands = strands
        self.done = [0] * len(strands)
        self.locks: set[str] = set()
        self.places: dict[str, tuple[str, ...]] = {}
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    @property
    def able(self) -> list[int]:
        return [
            strand
            for strand, (_, steps) in enumerate(self.strands)
            if self.done[strand] < len(steps)
            and not (steps[self.done[strand]][0] == "+" and steps[self.done[strand]][1] in self.locks)
        ]

    def step(self, strand: int) -> tuple[str, bool]:
        """Makes the strand's next step; what it touches."""
        kind, place = self.strands[strand][1][self.done[strand]]
        name = f"{strand}.{self.done[strand]}"
        self.done[strand] += 1
        self.seen.append((name, self.places.get(place, ())))
        if kind == "=":
            self.places[place] = (*self.places.get(place, ()), name)
        elif kind == "+":
            self.locks.add(place)
        elif kind == "-":
            self.locks.discard(place)
        return place, kind != "?"

    @property
    def outcome(self) -> tuple[object, ...]:
        return tuple(sorted(self.seen)), tuple(sorted(self.places.items()))


def run_locks(strands: Sequence[Strand], strategy: Strategy) -> tuple[object, ...]:
    machine, last = LockMachine(strands), ""
    while able := machine.able:
        choices = [Choice(strands[s][0], f"{s}", f"{strands[s][0]}:{s}:{machine.done[s]}") for s in able]
        strand = able[strategy.pick(choices, last)]
        touched = frozenset({machine.step(strand)})
        strategy.did(touched if strategy.reads_footprints else NOTHING)
        last = strands[strand][0]
    return machine.outcome


def all_outcomes(strands: Sequence[Strand], order: tuple[int, ...] = ()) -> set[tuple[object, ...]]:
    machine = LockMachine(strands)
    for strand in order:
        machine.step(strand)
    able = machine.able
    return (
        set().union(*(all_outcomes(strands, (*order, strand)) for strand in able))
        if able
        else {machine.outcome}
    )


def strands_of(seed: int) -> list[Strand]:
    """Up to three strands; a locked stretch now and then; in every other machine two strands are one client's."""
    dice = random.Random(seed)
    made: list[Strand] = []
    for number in range(dice.choice((2, 3))):
        steps = [(dice.choice("=?"), dice.choice("xy")) for _ in range(dice.randint(1, 2))]
        if dice.random() < 0.6:
            lock = dice.choice("lm")
            steps = [("+", lock), *steps[:1], ("-", lock), *steps[1:]]
        actor = "A" if number == 2 and seed % 2 else "ABC"[number]
        made.append((actor, steps))
    return made


@pytest.mark.parametrize("seed", [*range(40), 369])
def test_no_outcome_is_missed_with_locks_and_two_things_at_once(seed: int) -> None:
    strands, strategy = strands_of(seed), SourceSets()
    found = set()
    while strategy.start():
        with contextlib.suppress(Redundant):
            found.add(run_locks(strands, strategy))
    assert found == all_outcomes(strands)


def test_locks_that_are_taken_in_two_orders_are_seen_waiting_for_each_other() -> None:
    strands: list[Strand] = [
        ("A", [("+", "l"), ("+", "m"), ("=", "x"), ("-", "m"), ("-", "l")]),
        ("B", [("+", "m"), ("+", "l"), ("=", "x"), ("-", "l"), ("-", "m")]),
    ]
    strategy, lengths = SourceSets(), set()
    while strategy.start():
        with contextlib.suppress(Redundant):
            seen, _ = run_locks(strands, strategy)
            lengths.add(len(cast(tuple[object, ...], seen)))
    assert lengths == {2, 10}, "both ran to the end, and both waited for ever"


# ---- machines in which one operation is given up


class GivesUp:
    """Operations that ask the engine and hear what it answers, over and over; each answer may change what they share.
    One of them may be given up while it waits. What it has asked for still reaches the engine."""

    def __init__(self, operations: Sequence[Sequence[tuple[str, bool]]], shares: Sequence[bool]) -> None:
        self.operations, self.shares = operations, shares
        self.heard, self.arrived = [0] * len(operations), [0] * len(operations)
        self.given_up: int | None = None
        self.places: dict[str, tuple[str, ...]] = {}
        self.seen: list[tuple[object, ...]] = []

    @property
    def able(self) -> list[str]:
        found = []
        for number, requests in enumerate(self.operations):
            heard, arrived = self.heard[number], self.arrived[number]
            waits = 0 < heard <= len(requests) and number != self.given_up
            if heard == arrived <= len(requests) and number != self.given_up:
                found.append(f"{number}")
            if arrived < heard <= len(requests):
                found.append(f"{number}@")
            if waits and self.given_up is None:
                found.append(f"{number}!")
        return found

    def step(self, name: str) -> Footprint:
        number = int(name.rstrip("@!"))
        if name.endswith("@"):
            place, write = self.operations[number][self.arrived[number]]
            self.arrived[number] += 1
            self.touch(name, place, write)
            return frozenset({(place, write)})
        touched = {(f"operation {number}", True)}
        if name.endswith("!"):
            self.given_up = number
            self.seen.append((name, self.heard[number]))
            return frozenset(touched | {("giving up", True)})
        self.heard[number] += 1
        if self.shares[number]:
            self.touch(name, "memory", True)
            touched.add(("memory", True))
        return frozenset(touched)

    def touch(self, name: str, place: str, write: bool) -> None:
        self.seen.append((name, self.arrived[int(name.rstrip("@"))], self.places.get(place, ())))
        if write:
            self.places[place] = (*self.places.get(place, ()), name)

    @property
    def outcome(self) -> tuple[object, ...]:
        return tuple(sorted(self.seen, key=repr)), tuple(sorted(self.places.items()))


def gives_up(seed: int) -> GivesUp:
    dice = random.Random(seed)
    requests = [
        [(dice.choice("xy"), dice.random() < 0.6) for _ in range(size)]
        for size in dice.choice(((1, 1), (2, 1), (1, 1, 1)))
    ]
    return GivesUp(requests, [dice.random() < 0.4 for _ in requests])


def orders_of(make: Callable[[], GivesUp], order: tuple[str, ...] = ()) -> Iterator[GivesUp]:
    machine = make()
    for name in order:
        machine.step(name)
    if not machine.able:
        yield machine
    for name in machine.able:
        yield from orders_of(make, (*order, name))


@pytest.mark.parametrize("seed", range(30))
def test_whoever_gives_up_in_whatever_place_no_outcome_is_missed(seed: int) -> None:
    strategy, found = SourceSets(), []
    while strategy.start():
        machine, last = gives_up(seed), ""
        with contextlib.suppress(Redundant):
            while able := machine.able:
                # Two operations of one client: only what they touch puts their steps in order.
                choices = [Choice("A", name, name, alone=True) for name in able]
                last = able[strategy.pick(choices, last)]
                touched = machine.step(last)
                strategy.did(touched if strategy.reads_footprints else NOTHING)
            found.append(machine.outcome)
    assert not strategy.start(), "it stays at its end"
    wanted = {machine.outcome for machine in orders_of(lambda: gives_up(seed))}
    assert set(found) == wanted
    assert len(found) <= 2 * len(wanted), "most orders that nobody can tell apart are run once"


def test_few_runs_are_cut_short() -> None:
    """Trying every step in every state, except those that sleep, cuts nearly as many runs short as it finishes."""
    found = cut = 0
    for seed in range(60):
        runs, redundant = explored(machines(seed), SourceSets())
        found, cut = found + len(runs), cut + redundant
    assert cut < found / 20


def test_a_step_that_ends_anothers_chance_is_tried_after_it_too() -> None:
    """What is no longer possible cannot be seen racing."""

    def course(strategy: Strategy) -> str:
        both = [Choice("A", "A", "A:0"), Choice("B", "B", "B:0")]
        first = both[strategy.pick(both, "")].actor
        strategy.did(NOTHING)
        rest = [Choice("A", "A", "A:1")]
        for _ in range(2):
            strategy.pick(rest, first)
            strategy.did(NOTHING)
            rest = [Choice("A", "A", "A:2")]
        return first

    strategy, firsts = SourceSets(), []
    while strategy.start():
        with contextlib.suppress(Redundant):
            firsts.append(course(strategy))
    assert sorted(firsts) == ["A", "B"]


def test_independent_clients_have_one_order() -> None:
    found, _ = explored([[("x", True)] * 3, [("y", True)] * 3], SourceSets())
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


@pytest.mark.parametrize("make", [lambda: ByPreemptions(2), SourceSets])
def test_a_run_that_came_to_nothing_is_run_again(make: type[SourceSets]) -> None:
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


@pytest.mark.parametrize("make", [lambda: ByPreemptions(2), SourceSets])
def test_what_only_a_run_that_is_repeated_has_seen_is_forgotten(make: type[SourceSets]) -> None:
    """In the first run, a client took a step that it never takes again."""
    machine = [[("x", True)] * 2, [("x", True)] * 2]
    plain, _ = explored(machine, make())
    strategy = make()
    assert strategy.start()
    run([machine[0], [*machine[1], ("y", True)]], strategy)
    strategy.again()
    assert explored(machine, strategy) == (plain, 0)


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


@pytest.mark.parametrize("strategy", [SourceSets(), ByPreemptions(9)])
def test_the_same_with_the_names_exchanged_is_not_tried(strategy: Strategy) -> None:
    """Two clients read and write one place: whoever begins is called A."""

    def course(strategy: Strategy) -> str:
        done, order = {"A": 0, "B": 0}, ""
        while able := [name for name in "AB" if done[name] < 2]:
            choices = [
                Choice(name, name, f"{name}:{done[name]}", is_mirrored=name == "B" and order == "")
                for name in able
            ]
            chosen = able[strategy.pick(choices, order[-1:])]
            strategy.did(frozenset({("x", done[chosen] == 1)}))
            done[chosen] += 1
            order += chosen
        return order

    found = []
    while strategy.start():
        with contextlib.suppress(Redundant):
            found.append(course(strategy))
    assert {order[0] for order in found} == {"A"}
    assert {"AABB", "ABAB", "ABBA"} >= set(found)
    assert {"AABB", "ABAB"} <= set(found), (
        "since the two reads commute, ABBA is ABAB with the names exchanged"
    )
