"""`recollect report`: judges saved histories again and renders them; merges the shards of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from recollect import exit_codes
from recollect.commands.console import PlainConsole, echo
from recollect.commands.json_output import JsonOption
from recollect.commands.writing import (
    BaselineOption,
    HtmlOption,
    JunitOption,
    RequireOption,
    StrictOption,
    VerboseOption,
    reports_wanted,
    tell,
)
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryError
from recollect.verify.judging.verdict import Verdict
from recollect.verify.matrix import results as saved
from recollect.verify.matrix.findings import renumbered
from recollect.verify.matrix.results import Result, Results
from recollect.verify.running.scenario import FILE as SCENARIO


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or single histories.")],
    require: RequireOption = None,
    strict: StrictOption = False,
    verbose: VerboseOption = False,
    baseline: BaselineOption = None,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
    junit_file: JunitOption = None,
) -> None:
    """Judge saved runs again, without any engine, and render them. Several folders are shards of one run: merged."""
    wanted = reports_wanted(json_file, html_file, junit_file, verbose, require, strict, baseline)
    try:
        parts = [_loaded(path) for run in runs for path in _runs_in(run)]
    except (OSError, msgspec.MsgspecError) as error:
        echo(str(error), err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    console = PlainConsole(stderr=json_file == "-")
    merged = renumbered(merge(parts))
    tell(console, merged, wanted)


def merge(parts: list[Results]) -> Results:
    """Merges several results into one: all their cells, times added up, and each cell's folder with its run's."""
    if len(parts) == 1:
        return parts[0]
    cells = [_moved(result, part) for part in parts for result in part.results]
    return Results(
        seed=parts[0].seed,
        date=min(part.date for part in parts),
        elapsed_s=sum(part.elapsed_s for part in parts),
        results=tuple(cells),
    )


def _moved(result: Result, part: Results) -> Result:
    smallest = result.smallest_run
    if smallest is not None:
        smallest = msgspec.structs.replace(smallest, folder=part.place(smallest.folder))
    return msgspec.structs.replace(
        result,
        folder=part.place(result.folder),
        hidden_by=part.place(result.hidden_by),
        smallest_run=smallest,
    )


def _runs_in(path: Path) -> list[Path]:
    """The folder itself, or the runs in its subfolders, as CI systems unpack the shards of a run, or those one level
    deeper: a project's folder has them in `runs`."""
    if not path.is_dir() or (path / saved.SUMMARY).exists() or (path / saved.HISTORY).exists():
        return [path]
    for name in (saved.SUMMARY, SCENARIO):  # a run that was killed has no summary: its cells, one by one
        found = list(path.glob(f"*/{name}")) or list(path.glob(f"*/*/{name}"))
        if found:
            break
    return sorted(file.parent for file in found) or [path]


def _loaded(path: Path) -> Results:
    try:
        return _load(path)
    except HistoryError as error:
        echo(f"{path} is not a history: {error}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None


def _load(path: Path) -> Results:
    if path.is_dir() and (path / saved.SUMMARY).exists():
        before = saved.load(path)
        return msgspec.structs.replace(
            before, folder=str(path), results=tuple(_judged_again(result, path) for result in before.results)
        )
    history = path / saved.HISTORY if path.is_dir() else path
    if not history.exists() and (path / SCENARIO).exists():
        return saved.unfinished(path)
    if not history.exists():
        raise FileNotFoundError(f"{path}: no {saved.SUMMARY} and no {saved.HISTORY} in it")
    return saved.of_history(history)


def _judged_again(result: Result, folder: Path) -> Result:
    """A fresh verdict from the history; runs that never got that far keep their reason. Without its history, nobody can
    tell whether the saved verdict is right."""
    if not result.folder or result.verdict.status in ("skipped", "unknown"):
        return result
    history = folder / result.folder / saved.HISTORY
    if not history.exists():
        reason = f"it was {result.verdict.status}, and its history is not there to judge it again: {history}"
        return msgspec.structs.replace(result, verdict=Verdict(status="unknown", reason=reason))
    return msgspec.structs.replace(result, verdict=analyze(History(history)))
