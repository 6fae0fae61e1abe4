"""`--html` and `--junit`: the options that several commands share, and writing the files they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recollect.verify.results import Require, Results

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
        typer.echo(f"cannot write {error.filename}: {error.strerror}; the run itself is saved", err=True)
        raise typer.Exit(2) from None
