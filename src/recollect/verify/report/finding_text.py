"""A finding as plain text, for a failed test and for a CI system's page."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.printable import counted
from recollect.verify.judging.steps import EVERYONE
from recollect.verify.matrix.findings import Finding, rate_of_finding
from recollect.verify.matrix.results import Results
from recollect.verify.report.symbols import client_of, size_of

NAMED_MAX = 2


def told(finding: Finding, results: Results, *, setting: str = "") -> str:
    """The sentence, the smallest run step by step, where it was seen, and the command that runs it again.

    `setting` is a line about the clearest cell, for callers that do not show it elsewhere.
    """
    lines = [
        headline(finding),
        finding.sentence,
        f"smallest run: {size_of(finding)}",
        *_steps(finding),
        seen_in(finding, results),
    ]
    return "\n".join([*lines, *filter(None, [setting, finding.replay])])


def headline(finding: Finding) -> str:
    often = "not run again" if finding.confirmation is None else f"confirmed {finding.confirmation}"
    return f"{finding.name} ({'silent' if finding.silent else 'loud'}), {often}"


def seen_in(finding: Finding, results: Results) -> str:
    # A replay runs the same cell several times.
    names = list(dict.fromkeys(results.results[place].scenario.place for place in finding.cells))
    text = f"seen in {counted(len(names), 'cell')}: {few(names)}"
    if len(finding.names) > 1:
        text += f"; also as {', '.join(finding.names[1:])}"
    if finding.hides:
        hidden = [results.results[place].scenario.place for place in finding.hides]
        text += f"; hides {hidden[0] if len(hidden) == 1 else counted(len(hidden), 'cell')}"
    if (often := rate_of_finding(finding, results)) is not None:
        text += f"; shown in {often.told}"
    return text


def few(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:NAMED_MAX]) + (
        f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    )


def _steps(finding: Finding) -> list[str]:
    """What is left out is no step, and has no number."""
    lines, number = [], 0
    for step in finding.steps:
        number += not step.left_out
        place = "" if step.left_out else f"{number}."
        who = "" if step.process == EVERYONE else f"{client_of(finding, step.process)} "
        lines.append(f"  {place:>3} {who}{step.text}")
    return lines
