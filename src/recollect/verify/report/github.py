"""What GitHub Actions shows of a run: an annotation in the store's code for each finding, and a job summary.

A finding from an order of threads knows the line where another thread came in between. Any other is put on the line
where the target's factory is defined. A target that is not a file of the checkout is annotated without a line.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from recollect.verify.matrix.findings import Finding, findings
from recollect.verify.matrix.results import Results
from recollect.verify.report.finding_text import headline, told
from recollect.verify.report.plain import plain

_STEP_AT = re.compile(r"^(?P<file>[^:\s]+\.py):(?P<line>\d+)")


def error_lines(results: Results, checkout: Path) -> list[str]:
    """GitHub workflow commands, one for each finding that is not in the baseline."""
    return [
        _annotation(finding, checkout) for finding in findings(results) if not _is_known(finding, results)
    ]


def _is_known(finding: Finding, results: Results) -> bool:
    return all(place in results.known for place in finding.cells)


def _annotation(finding: Finding, checkout: Path) -> str:
    where = {"title": plain(headline(finding))}
    if (place := _place_of(finding, checkout)) is not None:
        file, line = place
        where |= {"file": str(file), "line": str(line)}
    properties = ",".join(f"{name}={_escaped(value, more=':,')}" for name, value in where.items())
    return f"::error {properties}::{_escaped(plain(f'{finding.sentence} {finding.replay or str()}'.strip()))}"


def _escaped(text: str, more: str = "") -> str:
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _place_of(finding: Finding, checkout: Path) -> tuple[Path, int] | None:
    module, _, factory = finding.target.partition(":")
    if not factory or not all(part.isidentifier() for part in module.split(".")):
        return None
    relative = Path(*module.split(".")).with_suffix(".py")
    file = next((path for path in (relative, "src" / relative) if (checkout / path).is_file()), None)
    if file is None:
        return None
    for step in reversed(finding.steps):
        at = _STEP_AT.match(step.text)
        if at is not None and at["file"] == file.name:
            return file, int(at["line"])
    return file, _line_of(checkout / file, factory)


def _line_of(file: Path, factory: str) -> int:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return 1
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    lines = (node.lineno for node in tree.body if isinstance(node, defined) and node.name == factory)
    return next(lines, 1)


def summary(results: Results) -> str:
    """Markdown: each finding with its smallest run; if there is none, what held."""
    found = findings(results)
    counts = Counter(result.verdict.status for result in results.results)
    cells = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    title = f"{len(found)} finding{'s'[: len(found) != 1]}" if found else "no findings"
    parts = [f"## Memory: {title}", f"{cells} · seed {results.seed}"]
    for finding in found:
        known = " (known)" if _is_known(finding, results) else ""
        parts.append(f"### {plain(headline(finding))}{known}")
        text = "\n".join(map(plain, told(finding, results).splitlines()))
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        parts.append(f"{fence}text\n{text}\n{fence}")
    return "\n\n".join(parts) + "\n"
