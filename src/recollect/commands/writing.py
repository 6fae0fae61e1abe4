"""Where commands write: the folder of a run, and `--json`, `--html` and `--junit`, which several of them share."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from recollect import exit_codes, private
from recollect.commands import json_output
from recollect.commands.console import echo, tell_written
from recollect.printable import counted
from recollect.verify import run_folder
from recollect.verify.judging.verdict import UNDER_STRICT
from recollect.verify.matrix import baseline as baselines
from recollect.verify.matrix.baseline import KnownFinding
from recollect.verify.matrix.document import document
from recollect.verify.matrix.results import (
    WHOLE_SESSIONS,
    Require,
    Results,
    exit_code,
    refused_requirement,
    worse_than,
)
from recollect.verify.report import github, terminal

HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write one self-contained HTML page.", callback=json_output.writable
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Fail on documented losses and on `exposed` too.")
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show every cell's details below the table, not only the findings."),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The --json of an earlier run: fail only on findings that it does not have."
    ),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Fail on documented losses worse than this: written or fsynced; whole-sessions fails if any session is "
        "left in part."
    ),
]
JunitOption = Annotated[
    Path | None,
    typer.Option(
        "--junit", metavar="FILE", help="Write JUnit XML, for CI systems.", callback=json_output.writable
    ),
]

RUNS = Path("runs")


@contextmanager
def folder_of_run(given: Path | None, name: str) -> Iterator[Path]:
    """The folder that the user names, or a new one in `runs`; locked against other runs meanwhile."""
    with ExitStack() as held:
        try:
            folder = given or run_folder.new(RUNS, f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
            held.enter_context(run_folder.in_use(folder))
        except run_folder.FolderInUse as error:
            echo(f"{error} with --out", err=True)
            raise typer.Exit(exit_codes.USAGE) from None
        except OSError as error:
            reason = error.strerror or error
            echo(f"cannot write to {given or RUNS}: {reason}; choose another folder with --out", err=True)
            raise typer.Exit(exit_codes.USAGE) from None
        try:
            yield folder
        finally:
            if given is None:
                run_folder.remove_if_unused(folder)


@dataclass(frozen=True)
class ReportsWanted:
    """What the user wants from a finished run: which files, and how strict the exit code is."""

    json: str | None = None
    html: Path | None = None
    junit: Path | None = None
    verbose: bool = False
    require: Require | None = None
    strict: bool = False
    known: tuple[KnownFinding, ...] | None = None
    """Findings of the baseline, if there is one."""
    faults: tuple[str, ...] = ()
    """Those that were asked for by name: if one of them cannot run, the reason is shown."""


def reports_wanted(
    json: str | None,
    html: Path | None,
    junit: Path | None,
    verbose: bool,
    required: list[str] | None,
    strict: bool,
    baseline: Path | None = None,
    faults: Iterable[str] = (),
) -> ReportsWanted:
    """Refuses, before the run, what could not be done after it: a page without Jinja, a baseline that is not one."""
    require = _one_requirement(required)
    if html is not None and find_spec("jinja2") is None:
        echo("--html needs Jinja: pip install 'recollect[verify]'", err=True)
        raise typer.Exit(exit_codes.USAGE)
    try:
        known = None if baseline is None else baselines.load(baseline)
    except baselines.BadBaseline as bad:
        echo(str(bad), err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    return ReportsWanted(json, html, junit, verbose, require, strict, known, tuple(faults))


def _one_requirement(given: list[str] | None) -> Require | None:
    """What `--require` says; a second one would silently take the place of the first."""
    if given and len(given) > 1:
        raise typer.BadParameter(
            f"--require is given {len(given)} times ({', '.join(given)}); give the one that counts"
        )
    require = given[0] if given else None
    if (wrong := refused_requirement(require)) is not None:
        raise typer.BadParameter(f"--require {wrong}")
    return require


def tell(console: Console, results: Results, wanted: ReportsWanted) -> NoReturn:
    """Shows a run, writes what was asked for, and ends with its exit code."""
    if wanted.known is not None:
        results = baselines.compared(results, wanted.known)
    terminal.show(console, results, verbose=wanted.verbose, asked_for=wanted.faults)
    _tell_refused(console, results, wanted)
    code = exit_code(results, wanted.require, strict=wanted.strict)
    try:
        write_json(results, wanted.json)
        write_reports(results, wanted.html, wanted.junit, wanted.require, strict=wanted.strict)
        tell_written(console, wanted.json, wanted.html, wanted.junit)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            _tell_github(console, results)
    except typer.Exit as unwritten:  # a full disk hides no violation
        code = code if code in (exit_codes.INTERNAL, exit_codes.VIOLATED) else unwritten.exit_code
    raise typer.Exit(code)


def _tell_refused(console: Console, results: Results, wanted: ReportsWanted) -> None:
    """Names the cells that fail the run although nothing is violated in them."""
    if wanted.strict:
        failed = ", ".join(
            f"{count} {status}" for status, count in results.counts.items() if status in UNDER_STRICT
        )
        if failed:
            console.print(f"✗ --strict: {failed}", highlight=False, markup=False)
    if wanted.require is None:
        return
    refused = [result for result in results.results if worse_than(result, wanted.require)]
    for result in refused:
        verdict = result.verdict
        parts = f"{counted(verdict.partly_lost_sessions, 'session')} left in part, " * (
            wanted.require == WHOLE_SESSIONS
        )
        text = f"✗ --require {wanted.require}: {result.scenario.title}: {parts}{verdict.account}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _tell_github(console: Console, results: Results) -> None:
    """Prints annotations, which GitHub's runner picks up, and writes the job's summary."""
    for line in github.error_lines(results, Path.cwd()):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(github.summary(results))
        except OSError as error:
            raise _cannot_write(error) from None


def write_reports(
    results: Results, html: Path | None, junit: Path | None, require: Require | None, *, strict: bool = False
) -> None:
    """Writes the files asked for. It imports late: the page needs Jinja, and rendering it reads every history."""
    try:
        if html is not None:
            from recollect.verify.report import html as page

            html.parent.mkdir(parents=True, exist_ok=True)
            page.write(results, html)
        if junit is not None:
            from recollect.verify.report import junit as xml

            junit.parent.mkdir(parents=True, exist_ok=True)
            xml.write(results, junit, require, strict=strict)
    except OSError as error:
        raise _cannot_write(error) from None


def write_page(text: str, file: Path) -> None:
    """A page that a command made itself."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        private.write_artifact(file, text)
    except OSError as error:
        raise _cannot_write(error) from None


def write_json(results: Results, file: str | None) -> None:
    if file is None:
        return
    json_output.write(json.dumps(document(results), indent=2, ensure_ascii=False), file)


def _cannot_write(error: OSError) -> typer.Exit:
    echo(f"cannot write {error.filename}: {error.strerror}; the run itself is saved", err=True)
    return typer.Exit(exit_codes.USAGE)
