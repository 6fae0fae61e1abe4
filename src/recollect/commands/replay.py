"""`recollect replay`: the same scenario again, several times, with the reproduction rate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from recollect.commands.verify import write_json
from recollect.verify import scenario as scenarios
from recollect.verify.matrix import Matrix
from recollect.verify.report import terminal
from recollect.verify.results import Results, exit_code
from recollect.verify.selection import Cell


def replay(
    run: Annotated[Path, typer.Argument(help="The folder of one cell, as the report names it.")],
    times: Annotated[int, typer.Option(help="How often.", min=1)] = 5,
    workers: Annotated[int, typer.Option(help="Runs side by side.", min=1)] = 1,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write one JSON document; - is standard output.")
    ] = None,
) -> None:
    """Run a saved scenario again, with the same schedule, and say how often it shows the same.

    The seed repeats what each client asks and when the fault strikes. On a real engine it cannot repeat how they
    interleave, which is why the answer is a rate.
    """
    try:
        scenario = scenarios.load(run)
    except (OSError, msgspec.MsgspecError) as error:
        typer.echo(f"{run} is not the folder of a cell: {error}", err=True)
        raise typer.Exit(2) from None
    console = Console(stderr=json_file == "-")
    folder = run / "replays"
    cells = [Cell(msgspec.structs.replace(scenario, variant=scenario.variant)) for _ in range(times)]
    with terminal.Progress(console, times, None) as progress:
        results = Matrix(cells, folder, workers=workers, listener=progress, confirm=False).run()
    terminal.show(console, results)
    _rate(console, results)
    write_json(results, json_file)
    raise typer.Exit(exit_code(results))


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
