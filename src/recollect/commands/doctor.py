"""`recollect doctor URL`: read-only; what this engine would lose, and the steps that stop it."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, NoReturn

import msgspec
import typer
from rich.padding import Padding
from rich.text import Text

from recollect import __version__, exit_codes
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.json_output import JsonOption
from recollect.doctor import Diagnosis, Symptom, examine, scrub
from recollect.doctor.diagnosis import DiagnosisStatus, Level, LoginRefused
from recollect.errors import CannotOpen, EngineUnavailable, Refused

SYMBOLS: dict[Level, tuple[str, str]] = {
    "loss": ("✗", "bold red"),
    "cannot-tell": ("?", "magenta"),
    "note": ("·", "dim"),
}
HEADLINES: dict[DiagnosisStatus, tuple[str, str]] = {
    "can-lose": ("✗ acknowledged memory can be lost", "bold red"),
    "cannot-tell": ("? cannot tell whether acknowledged memory can be lost", "bold magenta"),
    "keeps": ("✓ with these settings nothing acknowledged is lost", "bold green"),
}


def doctor(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            envvar="RECOLLECT_URL",
            show_envvar=True,
            help="redis://…, redis+cluster://…, redis+sentinel://…, postgresql://…, "
            "sqlite:///file.db, a Chroma folder or http://… address. In the "
            "environment a password is not seen by `ps`.",
        ),
    ],
    json_file: JsonOption = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Time limit for all answers together.", min=0.1),
    ] = 10.0,
) -> None:
    """Say what this engine would lose with the settings it has, and the safe steps that stop it. Changes nothing.

    Exit codes: 1 something acknowledged can be lost, 0 it cannot, 2 usage, 3 nothing could be concluded.
    """
    try:
        diagnosis = asyncio.run(examine(url, timeout_s))
    except LoginRefused as error:
        reason = f"it answers and refuses the login, so there is no diagnosis: {str(error).rstrip('.')}"
        _fail(f"{reason}; check the user and the password in the address", exit_codes.INCONCLUSIVE)
    except EngineUnavailable as error:
        _fail(f"no answer, so there is no diagnosis: {error}", exit_codes.INCONCLUSIVE)
    except (Refused, CannotOpen) as error:
        _fail(str(error), exit_codes.USAGE)
    except Exception as error:  # a traceback would show the address, with its password
        _fail(
            f"the doctor itself failed: {type(error).__name__}: {scrub(str(error), url)}",
            exit_codes.INCONCLUSIVE,
        )
    if json_file is not None:
        json_output.write(json.dumps(document(diagnosis), indent=2, ensure_ascii=False), json_file)
    if json_file != json_output.PRINTED:
        console = PlainConsole(highlight=False, markup=False)
        show(console, diagnosis)
        tell_written(console, json_file)
    raise typer.Exit(diagnosis.exit_code)


def _fail(reason: str, code: int) -> NoReturn:
    echo(f"recollect doctor: {reason}", err=True)
    raise typer.Exit(code) from None


def document(diagnosis: Diagnosis) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(diagnosis)
    return {"recollect": __version__, "status": diagnosis.status, **told}


def show(console: PlainConsole, diagnosis: Diagnosis) -> None:
    name = " ".join(part for part in (diagnosis.engine, diagnosis.version) if part)
    policy = f", policy {diagnosis.policy}" if diagnosis.policy else ""
    console.print(f"{name} at {diagnosis.address}{policy}")
    words, style = HEADLINES[diagnosis.status]
    console.print(Text(words, style=style))
    for symptom in diagnosis.findings:
        console.print()
        _symptom(console, symptom)
    console.print("\nNothing was changed.", style="dim")


def _symptom(console: PlainConsole, symptom: Symptom) -> None:
    symbol, style = SYMBOLS[symptom.level]
    head = Text(f"{symbol} ", style=style)
    head.append(symptom.sentence, style="" if symptom.level == "note" else "bold")
    console.print(head)
    facts = (
        ("when", ", ".join(symptom.when)),
        ("window", symptom.window),
        ("setting", symptom.setting),
        ("source", symptom.source),
    )
    for name, value in facts:
        if value:
            console.print(Padding(Text(f"{name + ':':9}{value}", style="dim"), (0, 0, 0, 2), expand=False))
    for number, step in enumerate(symptom.procedure, 1):
        console.print(Padding(Text(f"{number}. {step}"), (0, 0, 0, 4), expand=False))
