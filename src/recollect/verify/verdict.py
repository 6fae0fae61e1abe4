"""The verdict: anomalies, set against what the engine itself promises.

Types first; `judge` is the only rule. Nothing here looks at an engine: a verdict is a pure function of a
history's evidence, so a saved run can be judged again.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["held", "documented-loss", "violated", "unknown", "skipped"]

# Judged in this order; an element counts once, under the first name that fits.
ANOMALIES: tuple[str, ...] = (
    "refuses-to-start",
    "unreadable",
    "silent-reset",
    "hidden",
    "cross-session-leak",
    "corrupted",
    "phantom",
    "dirty-read",
    "duplicate",
    "lost-update",
    "torn-turn",
    "lost-tail",
    "hole",
    "reorder",
    "fractured-read",
    "stale-read",
    "own-write-missing",
    "non-monotonic-read",
    "resurrected",
    "expired-early",
    "never-expired",
    "index-divergence",
)


class Witness(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first message affected and the events that prove it; numbers are event indices.

    `before_fault_s` is how long before the fault the message had been acknowledged.
    """

    session: str = ""
    message: str = ""
    acknowledged: int | None = None
    acknowledged_s: float | None = None
    fault: str | None = None
    fault_event: int | None = None
    before_fault_s: float | None = None
    events: tuple[int, ...] = ()


class Anomaly(msgspec.Struct, frozen=True):
    """A named violation: how many elements, whether an error reached the caller, and the first of them."""

    name: str
    count: int
    silent: bool
    first: Witness
    sentence: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one history; the fields of a `--json` cell that come from the evidence.

    `acked = kept + lost + forgotten + unchecked`. `loss_window_s` is the time from the acknowledgement of the
    first lost message to the fault that took it.
    """

    status: Status
    reason: str | None = None
    acked: int = 0
    kept: int = 0
    lost: int = 0
    forgotten: int = 0
    unchecked: int = 0
    unknown_outcomes: int = 0
    loss_window_s: float | None = None
    promise: str = ""
    promise_source: str = ""
    promised_window_s: float | None = None
    anomalies: tuple[Anomaly, ...] = ()
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    truncated: bool = False
