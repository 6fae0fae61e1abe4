"""`recollect replay`: the same scenario again, several times, with the reproduction rate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from recollect import exit_codes
from recollect.commands.writing import JsonOption, write_json
from recollect.verify.matrix.matrix import Matrix
from recollect.verify.matrix.results import Results, exit_code
from recollect.verify.matrix.selection import Cell
from recollect.verify.report import terminal
from recollect.verify.running import scenario as scenarios


def replay(
    run: Annotated[Path, typer.Argument(help="The folder of one cell, as the report names it.")],
    times: Annotated[int, typer.Option(help="How often.", min=1)] = 5,
    workers: Annotated[int, typer.Option(help="Runs side by side.", min=1)] = 1,
    json_file: JsonOption = None,
) -> None:
    """Run a saved scenario again, with the same schedule, and say how often it shows the same.

    The seed repeats what each client asks and when the fault strikes. On a real engine it cannot repeat how they
    interleave, which is why the answer is a rate.
    """
    try:
        scenario = scenarios.load(run)
    except (OSError, msgspec.MsgspecError) as error:
        typer.echo(f"{run} is not the folder of a cell: {error}{_cells_in(run)}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    console = Console(stderr=json_file == "-")
    folder = run / "replays"
    cells = [Cell(scenario)] * times
    with terminal.Progress(console, times) as progress:
        results = Matrix(cells, folder, workers=workers, listener=progress, confirm=False).run()
    terminal.show(console, results)
    _rate(console, results)
    write_json(results, json_file)
    raise typer.Exit(exit_code(results))


def _cells_in(folder: Path) -> str:
    """What may have been meant: the cells of a whole run."""
    found = sorted(file.parent.name for file in folder.glob("*/scenario.json"))
    return f"; it has the cells {', '.join(found[:3])}{' …' if len(found) > 3 else ''}" if found else ""


def _rate(console: Console, results: Results) -> None:
    names: dict[str, int] = {}
    for result in results.results:
        for name in {anomaly.name for anomaly in result.verdict.anomalies}:
            names[name] = names.get(name, 0) + 1
    total = len(results.results)
    if not names:
        console.print(f"no anomaly in {total} of {total} runs", highlight=False)
    for name, count in sorted(names.items(), key=lambda item: -item[1]):
        console.print(f"{name}: seen in {count} of {total} runs", highlight=False)
