"""`recollect report`: judges saved histories again and renders them; merges the shards of a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from recollect.commands.verify import check_require
from recollect.commands.writing import HtmlOption, JsonOption, JunitOption, write_json, write_reports
from recollect.verify.judging.analyze import analyze
from recollect.verify.judging.history import History, HistoryError
from recollect.verify.judging.op import Header
from recollect.verify.matrix import results as saved
from recollect.verify.matrix.results import Result, Results, exit_code
from recollect.verify.report import terminal
from recollect.verify.running.scenario import Scenario


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or single histories.")],
    require: Annotated[
        str | None, typer.Option(help="Fail on documented losses worse than this: written or fsynced.")
    ] = None,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
    junit_file: JunitOption = None,
) -> None:
    """Judge saved runs again, without any engine, and render them. Several folders are shards of one run: merged."""
    check_require(require)
    try:
        parts = [_load(path) for path in runs]
    except HistoryError as error:
        typer.echo(f"not a history: {error}", err=True)
        raise typer.Exit(2) from None
    except (OSError, msgspec.MsgspecError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    console = Console(stderr=json_file == "-")
    merged = merge(parts)
    terminal.show(console, merged)
    write_json(merged, json_file)
    write_reports(merged, html_file, junit_file, require)
    raise typer.Exit(exit_code(merged, require))


def merge(parts: list[Results]) -> Results:
    """One result of several: cells side by side, times added up, folders made part of each cell's own."""
    if len(parts) == 1:
        return parts[0]
    cells = [
        msgspec.structs.replace(result, folder=f"{part.folder}/{result.folder}" if result.folder else "")
        for part in parts
        for result in part.results
    ]
    return Results(seed=parts[0].seed, elapsed_s=sum(part.elapsed_s for part in parts), results=tuple(cells))


def _load(path: Path) -> Results:
    if path.is_dir() and (path / saved.SUMMARY).exists():
        before = saved.load(path)
        return msgspec.structs.replace(
            before, folder=str(path), results=tuple(_judged_again(result, path) for result in before.results)
        )
    history = path / "history.jsonl" if path.is_dir() else path
    if not history.exists():
        raise FileNotFoundError(f"{path}: no results.json and no history.jsonl in it")
    started = time.monotonic()
    loaded = History(history)
    result = Result(
        scenario=_scenario(loaded.header),
        verdict=analyze(loaded),
        engine_version=loaded.header.engine_version,
        provider=loaded.header.provider,
        folder=str(history.parent),
    )
    return Results(seed=loaded.header.seed, elapsed_s=time.monotonic() - started, results=(result,))


def _judged_again(result: Result, folder: Path) -> Result:
    """The verdict anew where there is a history; runs that never got that far keep their reason."""
    history = folder / result.folder / "history.jsonl"
    if not result.folder or not history.exists() or result.verdict.status in ("skipped", "unknown"):
        return result
    return msgspec.structs.replace(result, verdict=analyze(History(history)))


def _scenario(header: Header) -> Scenario:
    return Scenario(
        target=header.target,
        engine=header.engine,
        policy=header.policy,
        fault=header.fault,
        workload=header.workload,
        seed=header.seed,
    )
