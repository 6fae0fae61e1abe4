"""`recollect replay`: the same scenario again, several times, with the reproduction rate."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from recollect import exit_codes
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.interleavings import replay_schedule
from recollect.commands.json_output import JsonOption
from recollect.commands.writing import write_json
from recollect.errors import shorten
from recollect.printable import counted
from recollect.secret import SecretUrl
from recollect.verify import run_folder
from recollect.verify.judging.evidence import OLDER_DATA
from recollect.verify.judging.half_turns import INTERLEAVINGS
from recollect.verify.matrix.matrix import Matrix
from recollect.verify.matrix.results import Results, exit_code
from recollect.verify.matrix.selection import Cell
from recollect.verify.providers import url as addresses
from recollect.verify.report import terminal
from recollect.verify.report.progress import LiveProgress
from recollect.verify.running import scenario as scenarios
from recollect.verify.running import seal
from recollect.verify.running.faults import FAULTS, fault_named
from recollect.verify.running.faults.compound import CannotCombine
from recollect.verify.running.scenario import Scenario
from recollect.verify.running.workloads import WORKLOADS


def replay(
    run: Annotated[Path, typer.Argument(help="The folder of one cell, as the report names it.")],
    times: Annotated[int, typer.Option(help="How many times to run it.", min=1)] = 5,
    workers: Annotated[int, typer.Option(help="Runs at the same time.", min=1)] = 1,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run what the scenario names, even if somebody else saved it.")
    ] = False,
    json_file: JsonOption = None,
) -> None:
    """Run a saved scenario again, with the same schedule, and say how often it shows the same anomaly.

    The seed repeats what each client asks and when the fault strikes. On a real engine it cannot repeat how they
    interleave, which is why the answer is a rate. A run on an engine of yours was saved without its credentials: set
    RECOLLECT_REDIS_URL or RECOLLECT_POSTGRES_URL to the address, or answer the question.

    A schedule that `recollect explore --interleavings` found is repeated step by step.

    A scenario names code to run: a target, an interpreter. One that this user did not save on this machine is refused
    unless you --trust it.
    """
    try:
        scenario = scenarios.load(run)
    except (OSError, msgspec.MsgspecError) as error:
        reason = f"no {scenarios.FILE} in it" if isinstance(error, FileNotFoundError) else str(error)
        echo(f"{run} is not the folder of a cell: {reason}{_cells_in(run)}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    _check_names(scenario, run)
    _check_trusted(scenario, run, trust)
    if scenario.workload == INTERLEAVINGS:
        replay_schedule(scenario, run, times, json_file)
    scenario = _with_credentials(scenario, run)
    console = PlainConsole(stderr=json_file == "-")
    cells = [Cell(scenario)] * times
    try:
        folder = run_folder.new(run, "replays")
    except OSError as error:
        echo(f"cannot write to {run}: {error.strerror or error}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    try:
        with LiveProgress(console, times) as progress:
            results = Matrix(cells, folder, workers=workers, listener=progress, confirm=False).run()
    finally:
        run_folder.remove_if_unused(folder)
    terminal.show(console, results, verbose=True)
    _rate(console, results)
    write_json(results, json_file)
    tell_written(console, json_file)
    raise typer.Exit(exit_code(results))


def _check_names(scenario: Scenario, run: Path) -> None:
    """The scenario may come from another release, with names that this one does not have."""
    known: dict[str, Collection[str]] = {
        "fault": (*FAULTS, OLDER_DATA),
        "workload": (*WORKLOADS, INTERLEAVINGS, OLDER_DATA),
    }
    wrong = [kind for kind, names in known.items() if getattr(scenario, kind) not in names]
    try:
        fault = fault_named(scenario.fault)
    except (KeyError, CannotCombine):
        fault = None
    else:
        wrong = [kind for kind in wrong if kind != "fault"]
    if fault is not None and not wrong and scenario.variant not in ("", *fault.variants):
        wrong = [] if fault.named_variant else ["variant"]
    if wrong:
        told = " and ".join(f"{kind} {getattr(scenario, kind)!r}" for kind in wrong)
        echo(f"{run}: this release does not know {told}; replay it with the release that saved it", err=True)
        raise typer.Exit(exit_codes.USAGE)


def _check_trusted(scenario: Scenario, run: Path, trust: bool) -> None:
    code = seal.code_in(scenario)
    if not code or trust or seal.fits(run):
        return
    echo(
        f"{run} was not saved by this user on this machine, and would run {shorten(', '.join(code), 500)}: "
        f"look at {run / scenarios.FILE}, and add --trust if that may run here",
        err=True,
    )
    raise typer.Exit(exit_codes.USAGE)


def _with_credentials(scenario: Scenario, run: Path) -> Scenario:
    """No file of a run has credentials: they are given again, in the environment or at a prompt."""
    if scenario.url is None or scenario.url.complete:
        return scenario
    variable = addresses.variable_of(scenario.engine_kind)
    given = addresses.from_environment(scenario.engine_kind)
    if given is None and sys.stdin.isatty():
        asked = f"The run used {scenario.url}, and its credentials are not saved. The whole address"
        given = SecretUrl(typer.prompt(asked, hide_input=True, err=True))
    if given is None:
        echo(
            f"{run} used {scenario.url}, and credentials are not saved: set {variable} to the whole address",
            err=True,
        )
        raise typer.Exit(exit_codes.USAGE)
    if given.saved != scenario.url.saved:
        echo(f"note: the run used {scenario.url}, this one uses {given}", err=True)
    return msgspec.structs.replace(scenario, url=given)


def _cells_in(folder: Path) -> str:
    """What the user may have meant: the cells of a whole run."""
    found = sorted(file.parent.name for file in folder.glob("*/scenario.json"))
    return f"; it has the cells {', '.join(found[:3])}{' …' if len(found) > 3 else ''}" if found else ""


def _rate(console: PlainConsole, results: Results) -> None:
    names: dict[str, int] = {}
    for result in results.results:
        for name in {anomaly.name for anomaly in result.verdict.anomalies}:
            names[name] = names.get(name, 0) + 1
    total = len(results.results)
    in_doubt = [result for result in results.results if result.verdict.status in ("unknown", "skipped")]
    concluded = total - len(in_doubt)
    if in_doubt:
        why = in_doubt[0].verdict.reason or "no reason given"
        how_many = f"{len(in_doubt)} of {counted(total, 'run')}" if concluded else counted(total, "run")
        console.print(f"nothing could be concluded in {how_many}: {why}", highlight=False, markup=False)
    if concluded and not names:
        console.print(f"no anomaly in {concluded} of {total} runs", highlight=False)
    for name, count in sorted(names.items(), key=lambda item: -item[1]):
        console.print(f"{name}: seen in {count} of {total} runs", highlight=False)
