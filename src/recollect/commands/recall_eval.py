"""`recollect recall-eval`: does a memory still find what it must, and nothing that it must not?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from recollect import exit_codes
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, tell_written
from recollect.commands.json_output import JsonOption
from recollect.recall import evaluation


def recall_eval(
    cases: Annotated[
        Path | None,
        typer.Argument(help="A YAML file of cases; by default a sample that ships with recollect."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Compare with the measurements saved here; fail on a regression.")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Save the measurements as the baseline.")] = False,
    k: Annotated[int | None, typer.Option(min=1, max=100, help="Instead of the file's k.")] = None,
    score_min: Annotated[float | None, typer.Option(help="Instead of the file's threshold.")] = None,
    embedder: Annotated[
        str | None, typer.Option(help="hashing, hashing:DIMENSION, openai:MODEL:DIMENSION or local:MODEL.")
    ] = None,
    index: Annotated[str | None, typer.Option(help="A vector index, as open_recall takes it.")] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="How much worse a score may get before it counts as a regression."
        ),
    ] = 0.0,
    json_file: JsonOption = None,
) -> None:
    """Measure recall@k and precision@k of a memory on a file of cases; exit 1 on a regression."""
    suite = evaluation.load_cases(cases or evaluation.SAMPLE)
    suite = evaluation.changed(suite, k=k, score_min=score_min, embedder=embedder)
    measured = asyncio.run(evaluation.measure(suite, index=index))
    if save:
        if baseline is None:
            raise typer.BadParameter("--save needs --baseline FILE")
        evaluation.save(measured, baseline)
    regressions = (
        [] if save or baseline is None else evaluation.compare(measured, evaluation.load(baseline), tolerance)
    )
    if json_file is not None:
        json_output.write(evaluation.as_json(measured, regressions), json_file)
    if json_file != json_output.PRINTED:
        typer.echo(evaluation.as_text(measured, regressions))
        tell_written(PlainConsole(), json_file)
    if regressions or not measured.ok:
        raise typer.Exit(exit_codes.VIOLATED)
