"""The command line. Each command is a module of `recollect.commands`; here they are only given their
names."""

from __future__ import annotations

import sys

import typer

from recollect.commands.chat import chat
from recollect.commands.engines import engines
from recollect.commands.recall_eval import recall_eval
from recollect.commands.replay import replay
from recollect.commands.report import report
from recollect.commands.verify import verify
from recollect.errors import RecollectError
from recollect.verify.host.errors import EngineError

EXIT_USAGE = 2

app = typer.Typer(
    name="recollect",
    help="LLM memory that is provably not forgotten.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Keeps `recollect COMMAND` a group, also while there is only one command."""


for command in (verify, replay, report, engines, chat, recall_eval):
    app.command()(command)


def main() -> None:
    try:
        app()
    except (EngineError, RecollectError) as error:
        typer.echo(f"recollect: {error}", err=True)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
