"""JUnit XML, which every CI system reads: a suite for each target, a test case for each cell.

A finding is one failure, on its clearest cell; the other cells that show it are marked skipped and name that cell, so
that one bug is not thirty failures. Unknown is an error (it must not look like success), skipped is skipped. A
documented loss passes, with the loss in its output, unless `--require` or `--strict` refuse it: then it fails, as the
exit code does.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as Xml

from recollect import private
from recollect.verify.matrix.findings import Finding, findings
from recollect.verify.matrix.results import Require, Result, Results, Trouble, exit_code, too_bad
from recollect.verify.report.finding_text import told
from recollect.verify.report.plain import plain

_COUNTED = ("failure", "error", "skipped")
_PLURAL = {"failure": "failures", "error": "errors", "skipped": "skipped"}
_TROUBLES: dict[Trouble | None, str] = {"internal": "internal error", "unopened": "not opened"}
"""The type of an error that says nothing about the store; any other is `unknown`."""


def write(results: Results, file: Path, require: Require | None = None, *, strict: bool = False) -> None:
    private.write_artifact(file, render(results, require, strict=strict))


def render(results: Results, require: Require | None = None, *, strict: bool = False) -> str:
    root = Xml.Element("testsuites", name="recollect verify", time=f"{results.elapsed_s:.3f}")
    suites: dict[str, list[int]] = {}
    for place, result in enumerate(results.results):
        suites.setdefault(result.scenario.target, []).append(place)
    for target, members in suites.items():
        root.append(_suite(target, members, results, require, strict))
    if exit_code(results, require, strict=strict) and not any(_says_no(suite) for suite in root):
        root.append(_nothing_concluded(results))
    for name in ("tests", *_PLURAL.values()):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    Xml.indent(root)
    return "<?xml version='1.0' encoding='utf-8'?>\n" + Xml.tostring(root, encoding="unicode") + "\n"


def _says_no(suite: Xml.Element) -> bool:
    return any(suite.get(_PLURAL[tag]) != "0" for tag in ("failure", "error"))


def _nothing_concluded(results: Results) -> Xml.Element:
    """Where every cell was skipped the command does not succeed, so this must not look like success either."""
    why = ", ".join(f"{reason} ({len(cells)})" for reason, cells in results.reasons("skipped").items())
    message = f"nothing could be concluded: {why or 'no cell ran'}"
    suite = Xml.Element("testsuite", name="recollect", tests="1", failures="0", errors="1", skipped="0")
    case = Xml.SubElement(suite, "testcase", classname="recollect", name="something was concluded")
    Xml.SubElement(case, "error", message=plain(message), type="unknown")
    return suite


def _suite(
    target: str, members: list[int], results: Results, require: Require | None, strict: bool
) -> Xml.Element:
    """`members` are places in the results."""
    suite = Xml.Element("testsuite", name=plain(target), tests=str(len(members)))
    properties = Xml.SubElement(suite, "properties")
    mine = [results.results[place] for place in members]
    engines = {f"{r.scenario.engine_name} {r.engine_version}" for r in mine if r.engine_version}
    told = {"seed": str(results.seed), "recollect": results.recollect, "engines": ", ".join(sorted(engines))}
    told["target"] = ", ".join(sorted({r.release for r in mine if r.release}))
    told["traits"] = ", ".join(sorted({trait for r in mine for trait in r.traits}))
    told["given"] = ", ".join(sorted({r.scenario.form for r in mine if r.scenario.form}))
    for name, value in told.items():
        if not value and name in ("target", "traits", "given"):
            continue  # the same document as before for stores without a name
        Xml.SubElement(properties, "property", name=name, value=plain(value))
    counts: Counter[str] = Counter()
    found = {place: finding for finding in findings(results) for place in finding.cells}
    for place in members:
        case = _case(place, results, found.get(place), require, strict)
        counts.update(child.tag for child in case if child.tag in _COUNTED)
        suite.append(case)
    for tag in _COUNTED:
        suite.set(_PLURAL[tag], str(counts[tag]))
    suite.set("time", f"{sum(result.elapsed_s for result in mine):.3f}")
    return suite


def _case(
    place: int, results: Results, finding: Finding | None, require: Require | None, strict: bool
) -> Xml.Element:
    result, replay = results.results[place], results.replay_of(results.results[place])
    scenario, verdict = result.scenario, result.verdict
    name = " ".join(part for part in (scenario.fault, scenario.variant, scenario.workload) if part)
    versions = {
        other.scenario.engine
        for other in results.results
        if (other.scenario.target, other.scenario.engine_name) == (scenario.target, scenario.engine_name)
    }
    engine = scenario.engine if len(versions) > 1 else scenario.engine_name
    case = Xml.Element(
        "testcase",
        # No version in the name: a CI system follows a test case by name, from one release of an engine to the next.
        # Where several ran side by side, it has to tell them apart.
        classname=plain(f"{scenario.target}.{engine}.{scenario.policy}"),
        name=plain(name),
        time=f"{result.elapsed_s:.3f}",
    )
    if place in results.known:
        Xml.SubElement(case, "system-out").text = f"known, in the baseline\n{_evidence(result, replay)}"
    elif finding is not None:
        _tell(case, place, finding, results)
    elif too_bad(result, require, strict):
        message = (
            verdict.reason or f"{verdict.lost} of {verdict.acked} acknowledged messages {verdict.what_befell}"
        )
        child = Xml.SubElement(case, "failure", message=plain(message), type=verdict.status)
        child.text = _evidence(result, replay)
    elif verdict.status == "unknown":
        kind = _TROUBLES.get(result.trouble, "unknown")
        child = Xml.SubElement(case, "error", message=plain(verdict.reason or kind), type=kind)
        child.text = _evidence(result, replay)
    elif verdict.status == "skipped":
        Xml.SubElement(case, "skipped", message=plain(verdict.reason or "skipped"))
    elif verdict.status in ("documented-loss", "exposed"):
        Xml.SubElement(case, "system-out").text = _evidence(result, replay)
    return case


def _tell(case: Xml.Element, place: int, finding: Finding, results: Results) -> None:
    """Adds the failure of a violated cell, or says which other cell has it."""
    lead = finding.cells[0]
    title = f"finding {finding.number}: {finding.name}"
    if place == lead:
        message = plain(f"{title}. {finding.sentence}")
        child = Xml.SubElement(case, "failure", message=message, type=plain(finding.name))
        child.text = "\n".join(map(plain, told(finding, results).splitlines()))
        return
    told_there = results.results[lead].scenario.place
    Xml.SubElement(case, "skipped", message=plain(f"violated: {title}, which fails {told_there}"))
    evidence = _evidence(results.results[place], results.replay_of(results.results[place]))
    Xml.SubElement(case, "system-out").text = evidence


def _evidence(result: Result, replay: str | None) -> str:
    """The witness sentences, the promise, and the command that runs it again."""
    verdict = result.verdict
    lines = [anomaly.told for anomaly in verdict.anomalies]
    if result.began:
        lines.insert(
            0,
            f"{verdict.status}: {verdict.lost} of {verdict.acked} acknowledged messages {verdict.what_befell}",
        )
    if verdict.promise:
        lines.append(f"promise: {verdict.promise}")
    if replay is not None:
        lines.append(replay)
    return plain("\n".join(lines))
