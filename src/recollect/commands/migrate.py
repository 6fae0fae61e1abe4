"""`recollect migrate URL`: brings a PostgreSQL schema up to date, for pipelines that open with ``migrate=False``."""

from typing import Annotated

import typer

from recollect import exit_codes
from recollect.commands.console import echo
from recollect.errors import RecollectError
from recollect.secret import scheme_of, scrub

SCHEMES = ("postgresql", "postgres")


def migrate(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            envvar="RECOLLECT_URL",
            show_envvar=True,
            help="postgresql://…, as given to open_store; ?search_path= is kept. In the environment a password is "
            "not seen by `ps`.",
        ),
    ],
) -> None:
    """Bring the schema of a PostgreSQL memory up to date."""
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        echo(f"recollect: only postgresql:// has a schema to migrate, not {scheme or 'no scheme'}", err=True)
        raise typer.Exit(exit_codes.USAGE)
    try:
        from recollect.stores.postgres.migrations import migrate as run
        from recollect.stores.postgres.schema import RELEASE_SCHEMA
    except ImportError as error:
        echo(f"recollect: pip install 'recollect[postgres]' first ({error.name} is missing)", err=True)
        raise typer.Exit(exit_codes.USAGE) from error
    try:
        run(url)
    except RecollectError as error:
        echo(f"recollect: {scrub(str(error), url)}", err=True)
        raise typer.Exit(exit_codes.USAGE) from None
    echo(f"the schema is at {RELEASE_SCHEMA}")
