"""Writes docs/faults.md from the table of faults: `python -m tests.docs.faults_page`."""

from pathlib import Path

from recollect.verify.matrix.selection import CORE_FAULTS
from recollect.verify.running.faults import FAULTS, Fault
from recollect.verify.running.faults.compound import FAMILIES, PAIRS

PAGE = Path(__file__).parent.parent.parent / "docs" / "faults.md"

HEAD = """\
# Faults

What each fault verifies, and what it does not. This page is generated from the table in `verify/running/faults/`
(`python -m tests.docs.faults_page`); a test keeps it up to date. `recollect verify --list-faults` is its short form.

Faults that destroy data only happen to engines that the run itself started. If a fault cannot happen (no server to
kill, no compiler, no second version), the cell is `skipped` with the reason. The core tier has those marked ●; `--full`
runs all of them in all their variants, and `--fault NAME@VARIANT` (or `--fault NAME --variant VARIANT`) runs one.

"""


COMPOUND = """
## Two at once

`--fault kill-engine+latency`: one of the two lasts, the other strikes and is healed meanwhile; `@latency-lasts` says
which, so both orders of healing can be had. The engine promises what it promises under both: the weaker of the two. The
parts run alone as well, and what one of them shows alone is its own finding, not the pair's.

These can be combined, one of each kind: {families}. A failover cannot happen together with a fault of the engine or of
the network. `--full` runs {pairs}.
"""


def page() -> str:
    return HEAD + "\n".join(_section(fault) for fault in FAULTS.values()) + _compound()


def _compound() -> str:
    kinds: dict[str, list[str]] = {}
    for name, family in FAMILIES.items():
        kinds.setdefault(family, []).append(f"`{name}`")
    families = "; ".join(f"{family}: {', '.join(names)}" for family, names in kinds.items())
    return COMPOUND.format(families=families, pairs=", ".join(f"`{pair}`" for pair in PAIRS))


def _section(fault: Fault) -> str:
    core = " ●" if fault.name in CORE_FAULTS else ""
    lines = [
        f"## `{fault.name}`{core}\n",
        f"- **Verifies** {fault.verifies}.",
        f"- **Does not verify** {fault.does_not_verify}.",
    ]
    variants = [variant or "plain (no name)" for variant in fault.variants]
    if len(variants) > 1:
        shown = ", ".join(name if " " in name else f"`{name}`" for name in variants)
        usual = "all run by default" if fault.usual_variants == len(variants) else "the first is the default"
        also = "".join(
            f"; `{variant}` runs too on {' and '.join(where)}" for variant, where in fault.usual_on.items()
        )
        lines.append(f"- **Variants**: {shown}; {usual}{also}.")
    if fault.named_variant:
        lines.append(f"- **`--variant`** may also name {fault.named_variant}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
