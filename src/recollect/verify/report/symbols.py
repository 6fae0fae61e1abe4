"""What a verdict looks like wherever people read it."""

from __future__ import annotations

from recollect.verify.judging.verdict import Status
from recollect.verify.matrix.results import Result

STYLES: dict[Status, tuple[str, str]] = {
    "held": ("✓", "green"),
    "documented-loss": ("◐", "yellow"),
    "exposed": ("◌", "yellow"),
    "violated": ("✗", "bold red"),
    "unknown": ("?", "magenta"),
    "skipped": ("·", "dim"),
}


def figure(result: Result) -> str:
    """What a cell comes to, in a few words."""
    verdict = result.verdict
    if verdict.status in ("skipped", "unknown"):
        return verdict.reason or ""
    return verdict.account
