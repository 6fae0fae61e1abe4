"""`recollect audit URL`: read-only; is everything that was acknowledged still there?"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer
from rich.padding import Padding
from rich.text import Text

from recollect import __version__, exit_codes, private
from recollect.audit import RATE, AuditProgress, AuditReport
from recollect.audit import audit as read_all
from recollect.audit.finding import MEANINGS
from recollect.audit.page import render
from recollect.audit.report import AuditStatus
from recollect.commands import json_output
from recollect.commands.console import PlainConsole, echo, tell_written
from recollect.commands.json_output import JsonOption
from recollect.errors import CannotOpen, CredentialsRefused, EngineUnavailable, RecollectError, Refused
from recollect.printable import counted
from recollect.secret import scrub

STYLES: dict[AuditStatus, str] = {"held": "bold green", "exposed": "bold yellow", "violated": "bold red"}
SHOWN_MAX = 10
"""How many findings of one name the terminal shows; the JSON and the page have more."""
TERMINAL_EVERY_S = 0.2
LINE_EVERY_S = 30.0


Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        envvar="RECOLLECT_URL",
        show_envvar=True,
        help="The store, as given to open_store; a replica will do. In the environment a password is not seen by "
        "`ps`.",
    ),
]
Rate = Annotated[
    float, typer.Option(metavar="N", help="Records per second, at most; 0 is as fast as possible.", min=0)
]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep progress here; a stopped audit continues from it."),
]
Witness = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The store's witness: detects a wiped or rolled-back store."),
]
TargetName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Whose store it is, if not recollect's: a name of `recollect verify --list`, or "
        "package.module:factory.",
    ),
]
SessionsFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="With --target: the ids to read, one on each line; - is standard input."
    ),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write one self-contained HTML page.", callback=json_output.writable),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Also fail when the engine's settings can lose something.")
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", help="Time limit for each answer of the engine.", min=0.1),
]


def audit(
    url: Url,
    rate: Rate = RATE,
    resume: Resume = None,
    witness: Witness = None,
    target: TargetName = None,
    sessions: SessionsFile = None,
    json_file: JsonOption = None,
    html: HtmlFile = None,
    strict: Strict = False,
    timeout_s: Timeout = 10.0,
) -> None:
    """Read the whole memory, and say what is missing or damaged. Changes nothing; others may write meanwhile.

    Exit codes: 0 everything is there, 1 something is lost or damaged, 2 usage, 3 it could not be read to the end.
    """
    try:
        if target is not None:
            _check_alone(resume, witness)
            report = asyncio.run(_of_target(url, target, sessions, rate or None, timeout_s))
        elif sessions is not None:
            raise Refused("--sessions names what to read of another store: give it with --target")
        else:
            report = asyncio.run(
                read_all(
                    url,
                    rate=rate or None,
                    resume=resume,
                    witness=witness,
                    timeout_s=timeout_s,
                    told=ProgressLine(resume),
                )
            )
    except (EngineUnavailable, CredentialsRefused) as error:
        _fail(f"it could not be read to the end: {scrub(str(error), url)}", exit_codes.INCONCLUSIVE)
    except (Refused, CannotOpen) as error:
        _fail(scrub(str(error), url), exit_codes.USAGE)
    except RecollectError as error:
        _fail(f"it cannot be read: {scrub(str(error), url)}", exit_codes.INCONCLUSIVE)
    _write(report, json_file, html)
    console = PlainConsole(highlight=False, markup=False, stderr=json_file == "-")
    show(console, report)
    tell_written(console, json_file, html)
    raise typer.Exit(report.exit_code(strict=strict))


def _check_alone(resume: Path | None, witness: Path | None) -> None:
    for option, given in (("--resume", resume), ("--witness", witness)):
        if given is not None:
            raise Refused(f"{option} belongs to recollect's own stores, and cannot be used with --target")


async def _of_target(
    url: str, target: str, sessions: str | None, rate: float | None, timeout_s: float
) -> AuditReport:
    from recollect.commands.named import names_first  # the kit has more dependencies
    from recollect.verify.auditing.auditing import audit_target

    names_first(listed=False, targets=[target])
    given = None if sessions is None else _ids(sessions)
    return await audit_target(
        url, target, sessions=given, rate=rate, timeout_s=timeout_s, told=ProgressLine(None)
    )


def _ids(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"--sessions {file}: {error.strerror}; a file with one id on each line") from None
    except UnicodeDecodeError:
        raise Refused(f"--sessions {file}: it is not UTF-8 text; a file with one id on each line") from None
    return [line for line in text.splitlines() if line]


class ProgressLine:
    """On a terminal, one line that is overwritten; elsewhere, a line now and then."""

    def __init__(self, resume: Path | None) -> None:
        self._every_s = TERMINAL_EVERY_S if sys.stderr.isatty() else LINE_EVERY_S
        self._due = time.monotonic() + self._every_s
        self._resume = resume

    def __call__(self, progress: AuditProgress, total: int | None) -> None:
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + self._every_s
        of = f" of {total:,}" if total is not None else ""
        found = sum(progress.counts.values())
        line = f"{progress.sessions:,}{of} sessions, {progress.messages:,} messages, {found:,} findings"
        sys.stderr.write(f"\r\x1b[K{line}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()


def document(report: AuditReport) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(report)
    return {"recollect": __version__, "status": report.status, **told}


def show(console: PlainConsole, report: AuditReport) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    read = f"{counted(report.messages, 'message')} of {counted(report.sessions, 'session')}"
    facts = f"{read} in {report.elapsed_s:,.1f} s"
    console.print(f"{report.read_by}: {facts}")
    console.print(Text(report.headline, style=STYLES[report.status]))
    for name, count in report.counts.items():
        console.print()
        console.print(Text(f"{name}: {count:,}", style="bold"))
        console.print(Padding(Text(MEANINGS[name], style="dim"), (0, 0, 0, 2), expand=False))
        found = [finding for finding in report.findings if finding.name == name]
        for finding in found[:SHOWN_MAX]:
            where = f"{finding.where}: " if finding.where else ""
            console.print(Padding(Text(f"{where}{finding.sentence}"), (0, 0, 0, 2), expand=False))
        if count > min(len(found), SHOWN_MAX):
            console.print(Text(f"  and {count - min(len(found), SHOWN_MAX):,} more", style="dim"))
    _show_settings(console, report)
    console.print("\nNothing was changed.", style="dim")


def _show_settings(console: PlainConsole, report: AuditReport) -> None:
    if report.settings is None:
        console.print("\nthe engine's settings could not be read", style="dim")
        return
    for symptom in report.settings.findings:
        if symptom.level == "loss":
            console.print(Text(f"\n◌ settings: {symptom.sentence}", style="yellow"))
    if report.settings.status == "can-lose":
        console.print(Text("  `recollect doctor` has the steps that stop it", style="dim"))


def _write(report: AuditReport, json_file: str | None, html: Path | None) -> None:
    if json_file is not None:
        json_output.write(json.dumps(document(report), indent=2, ensure_ascii=False), json_file)
    try:
        if html is not None:
            private.write_artifact(html, render(report))
    except OSError as error:
        echo(f"cannot write {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None


def _fail(reason: str, code: int) -> NoReturn:
    echo(f"recollect audit: {reason}", err=True)
    raise typer.Exit(code) from None
