"""A few seconds of interleavings as one verdict, for a run of many cells that wants the cheapest first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from recollect import private
from recollect.verify.explore.interleavings.results import InterleavingsAsked, InterleavingsFound
from recollect.verify.explore.interleavings.telling import sentence
from recollect.verify.explore.interleavings.words import GRACE_S, AllDone, explore_interleavings
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History
from recollect.verify.judging.verdict import Verdict

CANCEL_SHARE = 0.4
"""The share of the time for callers that give up."""
AGAIN_LEAST = 0.8
"""With less time than this share of what the first part took, the second would hardly have started."""


class Interleaved(NamedTuple):
    """The verdict, and the schedule that shows it, as `recollect explore --replay` takes it; empty if none does."""

    verdict: Verdict
    found: InterleavingsFound

    @property
    def schedule(self) -> str:
        return self.found.failure.schedule if self.found.failure is not None else ""


def interleave(
    target: str,
    engine: str,
    seconds: float,
    folder: Path,
    *,
    policy: str | None = None,
    programs: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
    grace_s: float = GRACE_S,
) -> Interleaved:
    """Explores tasks or threads, as the store requires, then cancelled callers, until something fails or time is up.

    All of it takes at most `grace_s` longer than `seconds`, with starting twice. `folder` gets the target's output and,
    where something failed, `history.jsonl`."""
    private.artifact_folder(folder)
    began_s = time.monotonic()
    until_s = began_s + seconds + grace_s
    asked = InterleavingsAsked(
        target=target,
        engine=engine,
        how="auto",
        policy=policy,
        programs=programs,
        seconds=seconds * (1 - CANCEL_SHARE),
        until_s=until_s,
        folder=str(folder),
        path=path,
    )
    done = explore_interleavings(asked)
    took_s, left_s = time.monotonic() - began_s, until_s - time.monotonic()
    goes_on = done.found.how == "tasks" and (done.found.status == "held" or done.found.is_cut_short)
    if goes_on and left_s > took_s * AGAIN_LEAST:
        again = msgspec.structs.replace(asked, cancel=True, seconds=seconds * CANCEL_SHARE)
        cancelled = explore_interleavings(again)
        done = cancelled if cancelled.found.status != "held" else done
    return Interleaved(_verdict(done), done.found)


def _verdict(done: AllDone) -> Verdict:
    found, failure = done.found, done.found.failure
    if found.status == "violated" and failure is not None:
        judged = analyze(History(Path(failure.history)))
        return msgspec.structs.replace(judged, status="violated", reason=sentence(failure))
    return Verdict(status=found.status, reason=found.reason)
