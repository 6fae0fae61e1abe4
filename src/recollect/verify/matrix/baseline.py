"""Compares findings with the JSON of an earlier run: what is new, what is still there and what is fixed.

A finding is known if the earlier run had one for the same store that shares a name with it; if several share the name,
it must also have been seen in one of the same cells. A finding is fixed if the cells that showed it ran again and none
of them shows it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from recollect.regular_files import read_file
from recollect.verify.matrix.findings import Finding, findings
from recollect.verify.matrix.results import Compared, Results


class BadBaseline(Exception):
    """The file is no usable baseline; the message says why, and what to do."""


class KnownFinding(msgspec.Struct, frozen=True):
    """The part of an earlier finding that is compared."""

    name: str
    target: str = ""
    sentence: str = ""
    also: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()

    @property
    def names(self) -> set[str]:
        return {self.name, *self.also}


def load(file: Path) -> tuple[KnownFinding, ...]:
    """The findings of an earlier run, read before this one begins."""
    again = "give the file that `recollect verify --json FILE` wrote"
    try:
        document: Any = msgspec.json.decode(read_file(file))
    except OSError as error:
        raise BadBaseline(f"--baseline {file}: {error.strerror or error}; {again}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadBaseline(f"--baseline {file}: not JSON; {again}") from None
    if not isinstance(document, dict) or "findings" not in document:
        raise BadBaseline(f"--baseline {file}: it has no findings; {again}")
    try:
        return msgspec.convert(document["findings"], tuple[KnownFinding, ...])
    except msgspec.ValidationError as error:
        raise BadBaseline(
            f"--baseline {file}: its findings do not come from a run ({error}); {again}"
        ) from None


def compared(results: Results, known: tuple[KnownFinding, ...]) -> Results:
    """The results, with their comparison to the known findings."""
    found = findings(results)
    pairs = _pairs(found, known, results)
    still = {number for number, _ in pairs}
    gone = [earlier for place, earlier in enumerate(known) if place not in {other for _, other in pairs}]
    ran = {
        result.scenario.title
        for result in results.results
        if result.verdict.status not in ("skipped", "unknown")
    }
    return msgspec.structs.replace(
        results,
        baseline=Compared(
            new=tuple(finding.number for finding in found if finding.number not in still),
            still=tuple(sorted(still)),
            fixed=tuple(earlier.name for earlier in gone if ran & set(earlier.cells)),
            not_run=tuple(earlier.name for earlier in gone if not ran & set(earlier.cells)),
            known_cells=_known_cells(found, still),
        ),
    )


def _known_cells(found: tuple[Finding, ...], still: set[int]) -> tuple[int, ...]:
    new = {place for finding in found if finding.number not in still for place in finding.cells}
    known = {place for finding in found if finding.number in still for place in finding.cells}
    return tuple(sorted(known - new))


def _pairs(
    found: tuple[Finding, ...], known: tuple[KnownFinding, ...], results: Results
) -> set[tuple[int, int]]:
    """Pairs of a finding's number and the place of the same earlier finding. Where several share a name, it is the
    one seen in the same cell."""
    alike = {
        (finding.number, place)
        for finding in found
        for place, earlier in enumerate(known)
        if finding.target == earlier.target and not earlier.names.isdisjoint(finding.names)
    }
    cells = {
        finding.number: {results.results[place].scenario.title for place in finding.cells}
        for finding in found
    }

    def is_plain(number: int, place: int) -> bool:
        return sum(one == number or other == place for one, other in alike) == 1

    return {
        (number, place)
        for number, place in alike
        if is_plain(number, place) or not cells[number].isdisjoint(known[place].cells)
    }
