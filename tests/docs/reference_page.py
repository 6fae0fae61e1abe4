"""Writes docs/reference.md from the docstrings of the public names: `python -m tests.docs.reference_page`.

The source is read, not imported: signatures are as they are written there, whatever Python version runs this.
"""

import ast
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import recollect

PROJECT = Path(__file__).parent.parent.parent
SOURCE = PROJECT / "src" / "recollect"
PAGE = PROJECT / "docs" / "reference.md"

HEAD = """\
# Reference

Every public name of the library, from its docstring. This page is made from the source
(`python -m tests.docs.reference_page`), and a test keeps it so. How the parts belong together:
[The library](library.md). `recollect.sync` has the same methods without `async`.

"""

PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Opening": ("opening.py", ("open_store",)),
    "Options of `open_store`": ("store.py", ("Options",)),
    "Stores": (
        "store.py",
        (
            *(
                "MemoryStore",
                "Positioned",
                "Retractable",
                "Replaceable",
                "Forkable",
                "Describable",
                "Findable",
            ),
            *("Spanning", "Listable", "Expiring", "Erasable", "Store"),
        ),
    ),
    "What they take and give": (
        "store.py",
        ("Receipt", "Stored", "Durability", "SessionState", "Description"),
    ),
    "Messages": ("message.py", ("Message", "Damaged")),
    "Erasure": ("erasure.py", ("Erasure",)),
    "Errors": (
        "errors.py",
        (
            *(
                "RecollectError",
                "Refused",
                "TurnReused",
                "NotWritten",
                "Conflict",
                "NotFound",
                "OutcomeUnknown",
            ),
            *(
                "CannotOpen",
                "EngineUnavailable",
                "CredentialsRefused",
                "DurabilityUnavailable",
                "MissingExtra",
            ),
            *("StoreReplaced", "StoreClosed", "Unreadable"),
        ),
    ),
}
NOT_SHOWN = frozenset({"Options.checked"})


def named() -> set[str]:
    return {name for _, names in PARTS.values() for name in names}


def page() -> str:
    parts = []
    for title, (file, names) in PARTS.items():
        tree = ast.parse((SOURCE / file).read_text())
        nodes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        parts.append(f"## {title}\n\n" + "\n".join(_section(nodes[name]) for name in names))
    return HEAD + "\n".join(parts)


def _section(node: ast.ClassDef | ast.FunctionDef) -> str:
    if isinstance(node, ast.FunctionDef):
        return f"### `{node.name}`\n\n`{_signature(node)}`\n\n{_text(node)}\n"
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    kind = f", a {bases}" if bases.isidentifier() and bases in recollect.__all__ else ""
    lines = [f"### `{node.name}`{kind}\n", f"{_text(node)}\n", *_fields(node), *_methods(node)]
    return "\n".join(line for line in lines if line.strip())


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Attributes with their types, defaults and the strings under them."""
    members = [*node.body, None]
    found = []
    for member, following in itertools.pairwise(members):
        if not isinstance(member, ast.AnnAssign | ast.Assign):  # the second in an enumeration
            continue
        shown = ast.unparse(member)
        if shown.startswith("_"):
            continue
        said = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            said = ": " + " ".join(str(following.value.value).split()).replace("``", "`")
        found.append(f"- `{shown}`{said}")
    if found:
        yield "\n" + "\n".join(found) + "\n"


def _methods(node: ast.ClassDef) -> Iterator[str]:
    for member in node.body:
        if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) or member.name.startswith("_"):
            continue
        if f"{node.name}.{member.name}" in NOT_SHOWN:
            continue
        yield f"\n**`{_signature(member)}`**\n\n{_text(member)}\n"


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{'await ' * isinstance(node, ast.AsyncFunctionDef)}{node.name}({arguments}){result}"


def _text(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A docstring as Markdown: double backticks are single ones there."""
    return inspect.cleandoc(ast.get_docstring(node) or "").replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(page())
