"""Known findings: what is new, still there and fixed, and what fails."""

import json
from pathlib import Path

import pytest

from recollect.verify.matrix import baseline
from recollect.verify.matrix.baseline import BadBaseline
from recollect.verify.matrix.document import document
from recollect.verify.matrix.results import Result, Results, exit_code, failed_last
from recollect.verify.report import html, junit
from tests.report.planned_cells import cell
from tests.report.test_findings import printed_of


def known_of(tmp_path: Path, *cells: Result) -> tuple[baseline.KnownFinding, ...]:
    file = tmp_path / "before.json"
    file.write_text(json.dumps(document(Results(results=cells))))
    return baseline.load(file)


def test_only_what_is_new_fails(tmp_path: Path) -> None:
    overwritten, doubled = cell("none", "lost-update"), cell("lost-ack", "duplicate", apart=True)
    known = known_of(tmp_path, overwritten)
    same = baseline.compared(Results(results=(overwritten, cell("cut", status="held"))), known)
    assert exit_code(same) == 0
    assert document(same)["baseline"] == {"new": [], "still": [1], "fixed": [], "not_run": []}
    assert "<failure" not in junit.render(same)
    more = baseline.compared(Results(results=(overwritten, doubled)), known)
    assert exit_code(more) == 1
    assert document(more)["baseline"]["new"] == [2]
    assert junit.render(more).count("<failure") == 1
    lines = printed_of(more)
    assert "against the baseline: 1 new, 1 still there, 0 fixed" in lines
    assert any("Finding 1: lost-update" in line and line.endswith("known") for line in lines)


def test_another_bug_of_a_known_name_is_new(tmp_path: Path) -> None:
    moved, killed = cell("clock-back", "reorder"), cell("kill-engine", "reorder")
    known = known_of(tmp_path, moved)
    both = baseline.compared(Results(results=(killed, moved)), known)
    assert document(both)["baseline"] == {"new": [1], "still": [2], "fixed": [], "not_run": []}
    other_cell = cell("clock-frozen", "reorder")
    again = baseline.compared(Results(results=(other_cell,)), known)
    assert document(again)["baseline"]["still"] == [1], "the only one of that name on both sides"


def test_the_page_tells_what_is_new_known_and_fixed(tmp_path: Path) -> None:
    overwritten, doubled = cell("none", "lost-update"), cell("lost-ack", "duplicate", apart=True)
    known = known_of(tmp_path, overwritten, cell("pause", "unreadable", apart=True))
    results = Results(results=(overwritten, doubled, cell("pause", status="held", apart=True)))
    page = html.render(baseline.compared(results, known))
    assert "Against the baseline: 1 new, 1 still there, 1 fixed (unreadable)." in page
    first, second = (part.partition("</h3>")[0] for part in page.split('<h3 id="finding-title-')[1:])
    assert "lost-update" in first
    assert first.endswith('<span class="voice">known</span>')
    assert "duplicate" in second
    assert second.endswith('<span class="voice">new</span>')
    assert "Against the baseline" not in html.render(results)


def test_what_is_unknown_still_makes_the_exit_code(tmp_path: Path) -> None:
    overwritten = cell("none", "lost-update")
    doubt = cell("cut", status="unknown")
    assert (
        exit_code(baseline.compared(Results(results=(overwritten, doubt)), known_of(tmp_path, overwritten)))
        == 3
    )


def test_fixed_is_what_ran_again_and_does_not_show_it(tmp_path: Path) -> None:
    known = known_of(tmp_path, cell("none", "lost-update"), cell("lost-ack", "duplicate", apart=True))
    now = baseline.compared(Results(results=(cell("none", status="held"),)), known)
    assert document(now)["baseline"] == {
        "new": [],
        "still": [],
        "fixed": ["lost-update"],
        "not_run": ["duplicate"],
    }
    assert exit_code(now) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", "no findings"),
        ('{"cells": []}', "no findings"),
        ('{"findings": [7]}', "do not come from a run"),
    ],
)
def test_a_baseline_that_cannot_be_read_is_said_before_the_run(
    tmp_path: Path, text: str | None, says: str
) -> None:
    file = tmp_path / "before.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadBaseline, match=says):
        baseline.load(file)


def test_what_failed_in_the_latest_run_of_a_folder(tmp_path: Path) -> None:
    assert failed_last(tmp_path) == frozenset()
    for name, fault in (("a", "cut"), ("b", "restart")):
        (tmp_path / name).mkdir()
        Results(results=(cell(fault, "lost-tail"), cell("pause", status="held"))).save(tmp_path / name)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "results.json").write_text("not ours")
    assert failed_last(tmp_path) == {cell("restart").scenario.name}
