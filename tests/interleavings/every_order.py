"""The outcomes of every order of a small program, with the reduced search and without it, one by one.

A process of its own, as every exploration. `python -m tests.interleavings.every_order TARGET ENGINE CANCEL PROGRAM
FOLDER` prints those that only one of them found.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing

from recollect.verify.explore.interleavings.explorer import Explorer, _Pursuit
from recollect.verify.explore.interleavings.program import ClientsProgram
from recollect.verify.explore.interleavings.results import InterleavingsAsked
from recollect.verify.explore.interleavings.search import ByPreemptions, Choice, Strategy
from recollect.verify.explore.interleavings.source_sets import SourceSets
from recollect.verify.explore.interleavings.world import LoggedStep
from tests.interleavings.cells import HERE

WITHIN_S = 60.0


Told = frozenset[tuple[str, str, str, frozenset[str]]]


def told_by(steps: list[LoggedStep]) -> Told:
    """What each operation was and returned, and which had ended before it began. Messages are named by who wrote them,
    since their numbers say only who began first."""
    begun: Counter[str] = Counter()
    ended: set[str] = set()
    names: dict[str, str] = {}
    asked: dict[str, tuple[str, frozenset[str]]] = {}
    found = []
    for step in steps:
        if step.kind == "begin":
            begun[step.actor] += 1
            numbers = re.findall(r"m\d+", step.label)
            names |= {number: f"{step.actor}{begun[step.actor]}.{n}" for n, number in enumerate(numbers)}
            asked[step.actor] = step.label, frozenset(ended)
        elif step.kind in ("end", "hang"):
            label, before = asked.get(step.actor, ("", frozenset()))
            ended.add(f"{step.actor}{begun[step.actor]}")
            found.append((f"{step.actor}{begun[step.actor]}", label, step.label, before))

    def named(text: str) -> str:
        return re.sub(r"m\d+", lambda number: names.get(number[0], number[0]), text)

    return frozenset((who, named(label), named(result), before) for who, label, result, before in found)


class EveryOrder(ByPreemptions):
    """Those too in which clients that do the same begin the other way round."""

    def pick(self, enabled: Sequence[Choice], last: str) -> int:
        return super().pick([choice._replace(is_mirrored=False) for choice in enabled], last)


def mirrored(told: Told) -> Told:
    """With the clients' names exchanged."""

    def exchanged(text: str) -> str:
        return re.sub(r"\b[AB](?=\d)", lambda name: "BA"["AB".index(name[0])], text)

    return frozenset(
        (exchanged(who), exchanged(label), exchanged(result), frozenset(map(exchanged, before)))
        for who, label, result, before in told
    )


def outcomes(explorer: Explorer, program: str, strategy: Strategy) -> set[object]:
    pursuit = _Pursuit(parsed := ClientsProgram.parse(program))
    are_twins = len(parsed.clients) == 2 and parsed.clients[0] == parsed.clients[1]
    found: set[object] = set()
    for one in explorer._runs(pursuit, strategy, time.perf_counter() + WITHIN_S):
        assert one is not None, "time is up"
        run, judged = one
        told = told_by(run.steps)
        found.add((told, bool(judged.anomalies)))
        if are_twins:
            found.add((mirrored(told), bool(judged.anomalies)))
    assert (pursuit.explored.repeated, pursuit.explored.diverged) == (0, 0)
    return found


def main(target: str, engine: str, cancel: str, program: str, folder: str) -> None:
    asked = InterleavingsAsked(
        target=target, engine=engine, how="tasks", cancel=cancel == "cancel", folder=folder, path=(str(HERE),)
    )
    with closing(Explorer(asked)) as explorer:
        reduced = outcomes(explorer, program, SourceSets())
        every = outcomes(explorer, program, EveryOrder(1000))
    assert len(every) > 1, "nothing to tell apart"
    for one in every ^ reduced:
        print("left out:" if one in every else "by the reduced search alone:", one)


if __name__ == "__main__":
    main(*sys.argv[1:])
