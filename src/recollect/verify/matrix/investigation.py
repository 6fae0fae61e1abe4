"""Investigating a finding: its clearest cell is run again and then made smaller, as far as time allows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from recollect.verify.judging.history import History, HistoryError
from recollect.verify.judging.steps import StepTaken, steps_of
from recollect.verify.judging.verdict import Anomaly
from recollect.verify.matrix.results import HISTORY, Result, SmallestRun
from recollect.verify.matrix.shrinking import Shrinker
from recollect.verify.running.scenario import Scenario

CONFIRM_TIMES = 3
SHRINK_S_MAX = 20.0


class Investigation:
    """Hands out the next run and is told how each ended; several may be under way at once."""

    def __init__(self, number: int, first: Result, name: str, time_s: float | None) -> None:
        """`name` is the anomaly to look for, `time_s` the time it may take; None means no limit."""
        self.number = number
        self.folder = first.folder
        self._scenario = first.scenario
        self._name = name
        self._time_s = SHRINK_S_MAX if time_s is None else min(time_s, SHRINK_S_MAX)
        self._asked = self._seen = self._heard = 0
        self._shrinker = Shrinker(first.scenario)
        self._smallest: SmallestRun | None = None
        self._tries = self._asked_small = 0
        self._began_s: float | None = None
        self._late = False

    @property
    def step(self) -> str:
        """What it is doing, for the progress display."""
        if not self._tries:
            return f"confirming {self._asked} of {CONFIRM_TIMES}"
        if self._asked_small:
            return f"the smallest again, {self._asked_small + 1} of {CONFIRM_TIMES}"
        return f"making it smaller, try {self._tries}"

    @property
    def name_of_next(self) -> str:
        """The folder name for the run that was handed out last."""
        return f"smaller-{self._tries}" if self._tries else f"again-{self._asked}"

    def _once_more(self) -> Scenario | None:
        """The smallest size again: showing the anomaly once may have been chance."""
        if self._smallest is None or not self._shrinker.finished or self._asked_small >= CONFIRM_TIMES - 1:
            return None
        self._asked_small += 1
        return self._smallest.scenario

    def next(self, now_s: float) -> Scenario | None:
        """The next run; None if there is none, or none until another one has ended."""
        if self._began_s is None:
            self._began_s = now_s
        if self._asked < CONFIRM_TIMES:
            self._asked += 1
            return self._scenario
        if self._heard < CONFIRM_TIMES or not self._seen or self._late:
            return None
        if now_s - self._began_s > self._time_s:
            self._late = not self._shrinker.finished
            return None
        scenario = self._shrinker.next() or self._once_more()
        self._tries += scenario is not None
        return scenario

    def heard(self, scenario: Scenario, result: Result, folder: Path, now_s: float) -> None:
        shown = next((found for found in result.verdict.broken if found.name == self._name), None)
        if self._heard < CONFIRM_TIMES:
            self._heard += 1
            self._seen += shown is not None
        elif self._asked_small and self._smallest is not None:
            seen, runs = self._smallest.shown
            self._smallest = msgspec.structs.replace(
                self._smallest, shown=(seen + (shown is not None), runs + 1)
            )
        elif self._shrinker.heard(scenario, shows=shown is not None) and shown is not None:
            self._smallest = SmallestRun(
                scenario=scenario, anomaly=shown, steps=_steps(folder, shown), folder=folder.name
            )

    def told(self, result: Result) -> Result:
        """The cell's result, with what is known by now."""
        smallest = None if self._smallest is None else self._smallest.scenario
        return msgspec.structs.replace(
            result,
            reproduced=(self._seen, self._heard),
            smallest=smallest,
            smallest_run=self._smallest,
            shrunk=self._how_far(),
        )

    def _how_far(self) -> str:
        if not self._seen:
            return "not made smaller: no other run showed it"
        if self._smallest is None:
            finished = self._shrinker.finished
            return "nothing smaller shows it" if finished else "there was no time to make it smaller"
        further = "nothing smaller shows it" if self._shrinker.finished else "there was no time to continue"
        return f"seen in {'{} of {}'.format(*self._smallest.shown)} runs of that size; {further}"


def _steps(folder: Path, anomaly: Anomaly) -> tuple[StepTaken, ...]:
    try:
        return steps_of(History(folder / HISTORY), anomaly.first)
    except (OSError, HistoryError):
        return ()
