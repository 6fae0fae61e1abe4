"""`recollect verify --list-faults`: every fault, what it verifies, and its variants."""

from typing import Never

import typer
from rich.table import Table

from recollect.commands.console import PlainConsole
from recollect.verify.matrix.selection import CORE_FAULTS
from recollect.verify.running.faults import FAULTS, Fault


def show_faults() -> Never:
    """Prints one row for each and ends the command."""
    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(no_wrap=True)
    rows.add_column()
    for fault in FAULTS.values():
        rows.add_row(
            f"{'●' if fault.name in CORE_FAULTS else ' '} {fault.name}", f"{fault.verifies}{_variants(fault)}"
        )
    console = PlainConsole(markup=False, emoji=False, highlight=False)
    console.print(rows)
    console.print(
        "\n● runs by default; --full runs all, --fault NAME or NAME@VARIANT runs one. More: docs/faults.md"
    )
    raise typer.Exit


def _variants(fault: Fault) -> str:
    named = [f"@{variant}" for variant in fault.variants if variant]
    if fault.named_variant:
        named.append(f"or {fault.named_variant}" if named else fault.named_variant)
    return f"\nvariants: {', '.join(named)}" if named else ""
