"""JUnit XML, which every CI system reads: a suite for each target, a test case for each cell.

Violated is a failure, unknown an error (it must not look like success), skipped is skipped. A documented loss passes,
with the loss in its output, unless `--require` or `--strict` refuse it: then it fails, as the exit code says.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as Xml

from recollect import private
from recollect.verify.matrix.results import Require, Result, Results, too_bad
from recollect.verify.report.plain import plain

_COUNTED = ("failure", "error", "skipped")
_PLURAL = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def write(results: Results, file: Path, require: Require | None = None, *, strict: bool = False) -> None:
    private.write_artifact(file, render(results, require, strict=strict))


def render(results: Results, require: Require | None = None, *, strict: bool = False) -> str:
    root = Xml.Element("testsuites", name="recollect verify", time=f"{results.elapsed_s:.3f}")
    suites: dict[str, list[Result]] = {}
    for result in results.results:
        suites.setdefault(result.scenario.target, []).append(result)
    for target, members in suites.items():
        root.append(_suite(target, members, results, require, strict))
    for name in ("tests", *_PLURAL.values()):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    Xml.indent(root)
    return "<?xml version='1.0' encoding='utf-8'?>\n" + Xml.tostring(root, encoding="unicode") + "\n"


def _suite(
    target: str, members: list[Result], results: Results, require: Require | None, strict: bool
) -> Xml.Element:
    suite = Xml.Element("testsuite", name=plain(target), tests=str(len(members)))
    properties = Xml.SubElement(suite, "properties")
    engines = {f"{r.scenario.engine_name} {r.engine_version}" for r in members if r.engine_version}
    told = {"seed": str(results.seed), "recollect": results.recollect, "engines": ", ".join(sorted(engines))}
    for name, value in told.items():
        Xml.SubElement(properties, "property", name=name, value=plain(value))
    counts: Counter[str] = Counter()
    for result in members:
        known = id(result) in {id(results.results[place]) for place in results.known}
        case = _case(result, results.replay_of(result), require, strict, known=known)
        counts.update(child.tag for child in case if child.tag in _COUNTED)
        suite.append(case)
    for tag in _COUNTED:
        suite.set(_PLURAL[tag], str(counts[tag]))
    suite.set("time", f"{sum(result.elapsed_s for result in members):.3f}")
    return suite


def _case(
    result: Result, replay: str | None, require: Require | None, strict: bool, *, known: bool
) -> Xml.Element:
    scenario, verdict = result.scenario, result.verdict
    name = " ".join(part for part in (scenario.fault, scenario.variant, scenario.workload) if part)
    case = Xml.Element(
        "testcase",
        # No version in it: a CI system follows a test case by its name, from one release of an engine to the next.
        classname=plain(f"{scenario.target}.{scenario.engine_name}.{scenario.policy}"),
        name=plain(name),
        time=f"{result.elapsed_s:.3f}",
    )
    refused = too_bad(result, require, strict)
    if known:
        Xml.SubElement(case, "system-out").text = f"known, in the baseline\n{_evidence(result, replay)}"
    elif verdict.status == "violated" or refused:
        message = verdict.reason or f"{verdict.lost} of {verdict.acked} acknowledged messages lost"
        child = Xml.SubElement(case, "failure", message=plain(message), type=_type(result, refused))
        child.text = _evidence(result, replay)
    elif verdict.status == "unknown":
        child = Xml.SubElement(case, "error", message=plain(verdict.reason or "unknown"), type="unknown")
        child.text = _evidence(result, replay)
    elif verdict.status == "skipped":
        Xml.SubElement(case, "skipped", message=plain(verdict.reason or "skipped"))
    elif verdict.status in ("documented-loss", "exposed"):
        Xml.SubElement(case, "system-out").text = _evidence(result, replay)
    return case


def _type(result: Result, refused: bool) -> str:
    if refused:
        return result.verdict.status
    anomalies = result.verdict.anomalies
    return anomalies[0].name if anomalies else "violated"


def _evidence(result: Result, replay: str | None) -> str:
    """The witness sentences, the promise, and the command that runs it again."""
    verdict = result.verdict
    lines = [
        f"{verdict.status}: {verdict.lost} of {verdict.acked} acknowledged messages lost",
        *(anomaly.told for anomaly in verdict.anomalies),
    ]
    if verdict.promise:
        lines.append(f"promise: {verdict.promise}")
    if replay is not None:
        lines.append(replay)
    return plain("\n".join(lines))
