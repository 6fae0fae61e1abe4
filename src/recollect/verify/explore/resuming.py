"""An exploration that continues: part by part within its budget, and from where an earlier one ended.

folder/
  findings.jsonl             what was judged, by disk and marks; both modes share it: most of their disks are the same
  progress-MODE-LEVEL.json   where the next part begins and the results of the parts before; only for runs with several
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from recollect.regular_files import read_file
from recollect.verify.disk.exploring import (
    Check,
    Exploration,
    ExplorePlan,
    Judgement,
    explore,
    load_judgements,
    save_judgements,
)
from recollect.verify.disk.states import State
from recollect.verify.explore.exploration import TargetRun
from recollect.verify.explore.judged_again import disagreement

REFUSED = "refuses-to-start"
JUDGEMENTS = "findings.jsonl"


@dataclass(frozen=True, slots=True)
class Tally:
    """How many states there were, and how they were judged."""

    states: int = 0
    held: int = 0
    documented: int = 0
    refused: int = 0
    violated: int = 0
    unsure: int = 0
    """Violated at first, but not when judged again: a bug of ours."""

    @classmethod
    def of(cls, part: Exploration) -> Tally:
        return cls.counted(len(part.states), part.judgements.values())

    @classmethod
    def counted(cls, states: int, judgements: Collection[Judgement]) -> Tally:
        refused = sum(judgement.anomaly == REFUSED for judgement in judgements)
        held = sum(judgement.anomaly is None for judgement in judgements)
        documented = sum(judgement.documented and judgement.anomaly != REFUSED for judgement in judgements)
        violated = len(judgements) - held - refused - documented
        return cls(states, held, documented, refused, violated)

    @property
    def judged(self) -> int:
        return self.held + self.documented + self.refused + self.violated + self.unsure

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.states + other.states,
            self.held + other.held,
            self.documented + other.documented,
            self.refused + other.refused,
            self.violated + other.violated,
            self.unsure + other.unsure,
        )


@dataclass(frozen=True, slots=True)
class Explored:
    """What the exploration has found so far: in this call, and in the parts before it."""

    plan: ExplorePlan
    tally: Tally
    judged_now: int
    elapsed_s: float
    anomalies: dict[str, int]
    worst: tuple[State, Judgement] | None
    """The first violation; without one the first refusal, then the first documented loss."""
    searched: int
    """How many records of the run were searched for crash states."""
    records: int
    """All records of the run."""
    disagreements: tuple[str, ...] = ()
    """What a fresh process judged differently."""

    @property
    def is_whole(self) -> bool:
        return self.searched == self.records and self.tally.judged == self.tally.states


@dataclass(frozen=True, slots=True)
class _Reached:
    start: int
    tally: Tally


def explore_run(
    run: TargetRun,
    folder: Path,
    plan: ExplorePlan,
    make_check: Callable[[], Check],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Explored:
    """Judge the states of a run until all are judged or the budget ends; call it again to go on."""
    began = time.monotonic()
    saved = folder / f"progress-{plan.mode}-{plan.level}.json"
    at = _Reached(plan.start, Tally())
    if saved.exists():
        at = msgspec.json.decode(read_file(saved), type=_Reached)
    known = load_judgements(folder / JUDGEMENTS)
    before = len(known)
    anomalies: dict[str, int] = {}
    bad = BadStates()
    try:
        while True:
            left_s = None if plan.budget_s is None else max(0.0, plan.budget_s - (time.monotonic() - began))
            part = explore(
                run.base,
                run.records,
                make_check,
                replace(plan, start=at.start, budget_s=left_s),
                known=known,
                progress=progress,
            )
            for state, judgement in part.bad():
                bad.add(state, judgement)
            for name, count in part.counts.items():
                if name != "held":
                    anomalies[name] = anomalies.get(name, 0) + count
            if part.left or part.reached is None:
                break
            at = _Reached(part.reached, at.tally + Tally.of(part))
            saved.write_bytes(msgspec.json.encode(at))
            if left_s is not None and time.monotonic() - began > (plan.budget_s or 0.0):
                part = replace(part, states=(), judgements={})
                break
    finally:
        save_judgements(folder / JUDGEMENTS, known)
    disagreements = bad.judge_again(folder)
    return Explored(
        plan,
        bad.corrected(at.tally + Tally.of(part), disagreements),
        len(known) - before,
        time.monotonic() - began,
        anomalies,
        bad.worst,
        len(run.records) if part.reached is None else part.reached,
        len(run.records),
        disagreements,
    )


class BadStates:
    """The first state of each kind that did not hold."""

    def __init__(self) -> None:
        self._first: dict[tuple[str | None, bool], tuple[State, Judgement]] = {}

    def add(self, state: State, judgement: Judgement) -> None:
        self._first.setdefault((judgement.anomaly, judgement.documented), (state, judgement))

    def judge_again(self, folder: Path) -> tuple[str, ...]:
        """Removes the kinds of violations whose first state a fresh process judges differently, and reports them."""
        found = []
        for kind, (state, judgement) in list(self._first.items()):
            if _is_violated(judgement) and (why := disagreement(folder, state, judgement)) is not None:
                found.append(why)
                del self._first[kind]
        return tuple(found)

    def corrected(self, tally: Tally, disagreements: Collection[str]) -> Tally:
        """Without violations that nobody can confirm."""
        if disagreements and not any(_is_violated(judgement) for _, judgement in self._first.values()):
            return replace(tally, violated=0, unsure=tally.unsure + tally.violated)
        return tally

    @property
    def worst(self) -> tuple[State, Judgement] | None:
        """The first violation; without one the first refusal, then the first documented loss."""
        return min(
            self._first.values(),
            key=lambda one: (one[1].documented, one[1].anomaly == REFUSED),
            default=None,
        )


def _is_violated(judgement: Judgement) -> bool:
    return not judgement.documented and judgement.anomaly != REFUSED
