"""The command line. Each command is a module of `recollect.commands`, named here and imported only when it is run.

That keeps `recollect migrate` independent of the kit's dependencies, and quick.

Commands scrub their own output. This is the safety net below them: credentials in any address on the command line or
in one of our environment variables are removed from everything printed, including the parser's complaints and
tracebacks.
"""

from __future__ import annotations

import codecs
import errno
import functools
import gc
import importlib
import io
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TextIO, cast

import typer

from recollect import __version__, exit_codes
from recollect.commands.console import echo
from recollect.commands.json_output import JsonCommand
from recollect.errors import RecollectError
from recollect.printable import printable
from recollect.secret import Scrubber, given_secrets


class _Command(NamedTuple):
    module: str
    function: str
    extra: str | None
    """The extra whose packages it needs."""
    about: str
    """Its line in the list of commands, which cuts the first sentence of a docstring."""


COMMANDS: dict[str, _Command] = {
    "verify": _Command(
        "recollect.commands.verify",
        "verify",
        "verify",
        "Break a store's engine with real faults; show what was lost.",
    ),
    "explore": _Command(
        "recollect.commands.explore",
        "explore",
        "verify",
        "Try every order of events, or every state after a power loss.",
    ),
    "replay": _Command("recollect.commands.replay", "replay", "verify", "Run a saved scenario again."),
    "report": _Command(
        "recollect.commands.report", "report", "verify", "Judge saved runs again, without an engine."
    ),
    "init": _Command(
        "recollect.commands.init", "init", "verify", "Write a test of your store, and a CI job."
    ),
    "engines": _Command(
        "recollect.commands.engines", "engines", "verify", "Show which engines this machine has."
    ),
    "doctor": _Command(
        "recollect.commands.doctor", "doctor", None, "Say what this engine's settings can lose."
    ),
    "audit": _Command(
        "recollect.commands.audit", "audit", None, "Read a whole memory; say what is missing or damaged."
    ),
    "watch": _Command(
        "recollect.commands.watch", "watch", None, "Run a canary beside production; raise an alarm on loss."
    ),
    "chat": _Command("recollect.commands.chat", "chat", "chat", "Serve a chat with a durable memory."),
    "recall-eval": _Command(
        "recollect.commands.recall_eval", "recall_eval", "chat", "Measure how well a memory recalls."
    ),
    "migrate": _Command(
        "recollect.commands.migrate", "migrate", "postgres", "Bring a PostgreSQL schema up to date."
    ),
    "export": _Command(
        "recollect.commands.export", "export", None, "Write every live session as JSON lines."
    ),
    "import": _Command("recollect.commands.export", "import_", None, "Write exported sessions into a store."),
    "erase": _Command("recollect.commands.erase", "erase", None, "Erase one session for good."),
}


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"recollect {__version__}")
        raise typer.Exit


def build(arguments: list[str]) -> typer.Typer:
    """The application with the command asked for, with none for the version, or with all for the help."""
    app = typer.Typer(
        name="recollect",
        help="LLM memory that is provably not forgotten.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,  # they show the values of variables, including addresses
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_group)
    asked = next((word for word in arguments if not word.startswith("-")), None)
    wanted = {asked: COMMANDS[asked]} if asked in COMMANDS else COMMANDS
    if arguments == ["--version"]:
        wanted = {}
    for name, command in wanted.items():
        _add(app, name, command)
    return app


def _group(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keeps `recollect COMMAND` a group even when only one command is loaded."""


def _add(app: typer.Typer, name: str, command: _Command) -> None:
    settings, about = {}, command.about
    try:
        function = getattr(importlib.import_module(command.module), command.function)
    except ImportError as error:
        if (error.name or "").startswith("recollect"):
            raise
        function = _explaining(
            f"recollect {name} needs {error.name}: pip install 'recollect[{command.extra}]'"
        )
        about = f"{about} (needs recollect[{command.extra}])"
        # Whatever it was given: what is missing is the answer, not that there is no such option.
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, cls=JsonCommand, context_settings=settings, short_help=about)(
        _ended_by_interrupt(function)
    )


def _explaining(missing: str) -> Callable[..., None]:
    """What stands for a command whose packages are not installed."""

    def explain() -> None:
        echo(missing, err=True)
        raise typer.Exit(exit_codes.USAGE)

    explain.__doc__ = missing
    return explain


def _ended_by_interrupt(function: Callable[..., None]) -> Callable[..., None]:
    """A command that does not handle an interrupt itself ends with one line."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except KeyboardInterrupt:
            echo("recollect: interrupted", err=True)
            raise typer.Exit(exit_codes.INCONCLUSIVE) from None

    return run


class _Scrubbed:
    """A stream that removes credentials from everything written to it."""

    def __init__(self, stream: TextIO, scrub: Scrubber) -> None:
        self._stream, self._scrub = stream, scrub

    def write(self, text: str) -> int:
        self._stream.write(self._scrub(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _scrub_output(arguments: list[str]) -> None:
    if scrub := given_secrets(arguments):
        sys.stdout = cast(TextIO, _Scrubbed(sys.stdout, scrub))
        sys.stderr = cast(TextIO, _Scrubbed(sys.stderr, scrub))


def _interrupt_again(unraisable: Any) -> None:
    """Python swallows an interrupt that strikes inside a finaliser; this raises it again, outside."""
    if unraisable.exc_type is KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)
    else:
        sys.__unraisablehook__(unraisable)


_IN_ASCII = str.maketrans(
    {
        "✓": "+",
        "✗": "x",
        "◐": "~",
        "◌": "o",
        "·": ".",
        "…": "...",
        "×": "x",
        "–": "-",
        "“": '"',
        "”": '"',
        "→": "->",
    }
)


def _as_ascii(error: UnicodeError) -> tuple[str, int]:
    """Replaces characters that the terminal or file cannot encode with ones that it can."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_IN_ASCII)
    return text.encode("ascii", "backslashreplace").decode(), error.end


def _fall_back_to_ascii() -> None:
    codecs.register_error("recollect-ascii", _as_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="recollect-ascii")


def main() -> None:
    _fall_back_to_ascii()
    _scrub_output(sys.argv[1:])
    try:
        app = build(sys.argv[1:])
        gc.freeze()
        gc.enable()
        # Also when a script started us in the background, where the shell makes us ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _interrupt_again
        app(prog_name="recollect")
    except RecollectError as error:  # it says what to do next; a traceback would hide that
        typer.echo(printable(f"recollect: {error}"), err=True)
        sys.exit(exit_codes.USAGE)
    except KeyboardInterrupt:
        sys.exit(exit_codes.INCONCLUSIVE)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            typer.echo(f"recollect: {error.strerror}: free some room, or write somewhere else", err=True)
            sys.exit(exit_codes.USAGE)
        told = f"recollect: this is a bug in recollect; please report it\n{traceback.format_exc()}"
        typer.echo(printable(told), err=True)
        sys.exit(exit_codes.INTERNAL)
    finally:
        # Everything is said. The warden or the kernel cleans up whatever is left if we are interrupted now.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
