"""Where commands write: the folder of a run, and `--json`, `--html` and `--junit`, which several of them share."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from recollect import exit_codes, private
from recollect.verify import run_folder
from recollect.verify.matrix.document import document
from recollect.verify.matrix.results import Require, Results

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write one JSON document; - is standard output.")
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained HTML page.")
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Fail on documented losses and on `exposed` too.")
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Every cell's own words below the table, not only the findings."),
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, for CI systems.")
]

_RUNS = Path("runs")


@contextmanager
def folder_of_run(given: Path | None, name: str) -> Iterator[Path]:
    """The folder that the user names, or a new one in `runs`; no other run writes to it meanwhile."""
    with ExitStack() as held:
        try:
            folder = given or run_folder.new(_RUNS, f"{time.strftime('%Y%m%d-%H%M%S')}-{name}")
            held.enter_context(run_folder.in_use(folder))
        except run_folder.FolderInUse as error:
            typer.echo(f"{error} with --out", err=True)
            raise typer.Exit(exit_codes.USAGE) from None
        except OSError as error:
            reason = error.strerror or error
            typer.echo(
                f"cannot write to {given or _RUNS}: {reason}; choose another folder with --out", err=True
            )
            raise typer.Exit(exit_codes.USAGE) from None
        try:
            yield folder
        finally:
            if given is None:
                run_folder.remove_if_unused(folder)


def write_reports(
    results: Results, html: Path | None, junit: Path | None, require: Require | None, *, strict: bool = False
) -> None:
    """Writes what was asked for. Imported only then: the page needs Jinja, and rendering it reads every history."""
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


def write_json(results: Results, file: str | None) -> None:
    if file is None:
        return
    text = json.dumps(document(results), indent=2, ensure_ascii=False) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        private.write_artifact(Path(file), text)
    except OSError as error:
        raise _cannot_write(error) from None


def _cannot_write(error: OSError) -> typer.Exit:
    typer.echo(f"cannot write {error.filename}: {error.strerror}; the run itself is saved", err=True)
    return typer.Exit(exit_codes.USAGE)
