"""`--json`, `--html` and `--junit`: the options that several commands share, and writing the files they name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from recollect import exit_codes
from recollect.verify.matrix.results import Require, Results, document

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write one JSON document; - is standard output.")
]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained HTML page.")
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, for CI systems.")
]


def write_reports(results: Results, html: Path | None, junit: Path | None, require: Require | None) -> None:
    """Writes what was asked for. Imported only then: the page needs Jinja, and rendering it reads every history."""
    try:
        if html is not None:
            from recollect.verify.report import html as page

            html.parent.mkdir(parents=True, exist_ok=True)
            page.write(results, html)
        if junit is not None:
            from recollect.verify.report import junit as xml

            junit.parent.mkdir(parents=True, exist_ok=True)
            xml.write(results, junit, require)
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
        Path(file).write_text(text)
    except OSError as error:
        raise _cannot_write(error) from None


def _cannot_write(error: OSError) -> typer.Exit:
    typer.echo(f"cannot write {error.filename}: {error.strerror}; the run itself is saved", err=True)
    return typer.Exit(exit_codes.USAGE)
