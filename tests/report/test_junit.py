"""JUnit XML: every CI system must be able to read it, and it must agree with the exit code."""

from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as Xml

import msgspec
import pytest

from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix.findings import findings
from recollect.verify.matrix.results import Result, Results, exit_code
from recollect.verify.report import junit
from recollect.verify.running.scenario import Scenario
from tests.report.planned_cells import cell, shrunk
from tests.report.saved_runs import save_matrix, save_run
from tests.report.test_results import KINDS

NASTY = "]]><script>\x00\x1b[31m \ud800 \u202e & \" '"


def suites(results: Results, require: str | None = None) -> Xml.Element:
    return Xml.fromstring(junit.render(results, require).encode())


def test_counts_and_evidence(tmp_path: Path) -> None:
    results = save_matrix(tmp_path / "run", 24, steps=80)
    root = suites(results)
    statuses = [result.verdict.status for result in results.results]
    assert root.get("tests") == "24"
    bugs = findings(results)
    assert root.get("failures") == str(len(bugs)) != "0"
    told_elsewhere = statuses.count("violated") - len(bugs)
    assert root.get("skipped") == str(statuses.count("skipped") + told_elsewhere)
    assert root.get("errors") == "0"
    failure = next(root.iter("failure"))
    assert failure.get("type") == "lost-tail"
    assert "recollect replay" in (failure.text or "")
    assert "acknowledged at" in (failure.text or "")
    assert {suite.get("name") for suite in root} == {result.scenario.target for result in results.results}


def test_one_bug_in_many_cells_is_one_failure() -> None:
    """With its sentence, its smallest run and its replay command; the other cells say whose bug they show."""
    shown = shrunk()
    results = Results(
        folder="runs/x", results=(cell("cut", "lost-update"), shown, cell("pause", status="held"))
    )
    root = suites(results)
    assert [root.get(count) for count in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    failed = next(case for case in root.iter("testcase") if case.find("failure") is not None)
    assert failed.get("name") == "none rewrite"
    failure = next(root.iter("failure"))
    assert failure.get("message") == "finding 1: lost-update. m1 went over m0"
    text = (failure.text or "").splitlines()
    assert "smallest run: 2 writers, 1 session, 2 operations each; nothing smaller shows it" in text
    assert "   3. process 0 saves m0" in text
    assert text[-1] == "recollect replay runs/x/small"
    message = next(root.iter("skipped")).get("message")
    assert message == "violated: finding 1: lost-update, which fails rdb none rewrite"
    assert exit_code(results) == 1


def test_two_bugs_are_two_failures() -> None:
    results = Results(results=(cell("cut", "duplicate"), cell("pause", "lost-tail")))
    assert suites(results).get("failures") == "2"


def test_a_documented_loss_passes_unless_it_is_worse_than_required(tmp_path: Path) -> None:
    scenario = Scenario(target="redis", engine="redis", policy="rdb", fault="kill-engine")
    result = save_run(tmp_path / "cell", scenario, lost=2)
    results = Results(folder=str(tmp_path), results=(result,))
    assert result.verdict.status == "documented-loss"
    assert suites(results).get("failures") == "0"
    assert "messages lost" in (next(suites(results).iter("system-out")).text or "")
    assert exit_code(results, "written") == 1
    assert suites(results, "written").get("failures") == "1"


@pytest.mark.parametrize("strict", [False, True])
def test_it_succeeds_where_the_command_does(strict: bool) -> None:
    """For every mix of verdicts and troubles."""
    for size in range(len(KINDS) + 1):
        for kinds in combinations(KINDS, size):
            results = Results(results=tuple(of_kind(kind) for kind in kinds))
            root = Xml.fromstring(junit.render(results, strict=strict).encode())
            failed = [root.get(count) for count in ("failures", "errors")] != ["0", "0"]
            assert failed is (exit_code(results, strict=strict) != 0), kinds
            cases = [case for case in root.iter("testcase") if case.find("error") is not None]
            assert root.get("errors") == str(len(cases))


def of_kind(kind: str) -> Result:
    status, trouble = KINDS[kind]
    return msgspec.structs.replace(cell("cut", status=status), trouble=trouble)


def test_what_says_nothing_about_the_store_is_no_verdict() -> None:
    unopened = msgspec.structs.replace(
        of_kind("unopened"), verdict=Verdict(status="unknown", reason="no such setting")
    )
    results = Results(results=(of_kind("internal"), unopened, of_kind("unknown")))
    errors = list(suites(results).iter("error"))
    assert [error.get("type") for error in errors] == ["internal error", "not opened", "unknown"]
    assert "messages lost" not in (errors[1].text or "")


def test_where_everything_was_skipped_it_says_why() -> None:
    skipped = cell("cut", status="skipped")
    why = msgspec.structs.replace(skipped.verdict, reason="no redis-server")
    results = Results(results=(msgspec.structs.replace(skipped, verdict=why),) * 2)
    (error,) = suites(results).iter("error")
    assert error.get("message") == "nothing could be concluded: no redis-server (2)"


def test_unknown_is_an_error_and_any_text_is_writable() -> None:
    scenario = Scenario(target=f"app:{NASTY}", engine="redis", policy="rdb", fault="kill-engine")
    verdict = Verdict(status="unknown", reason=NASTY)
    results = Results(results=(Result(scenario=scenario, verdict=verdict),))
    root = suites(results)
    assert root.get("errors") == "1"
    message = next(root.iter("error")).get("message") or ""
    assert message.startswith("]]><script>\\x00\\x1b[31m \\ud800 \\u202e &")
