"""The project's own files, as the tidy tests read them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent.parent
PACKAGE = PROJECT / "src" / "recollect"
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


@cache
def tracked() -> tuple[Path, ...]:
    """Every file that git knows or would add; without git, every file that is no build product."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    if done.returncode == 0:
        names = [PROJECT / name for name in done.stdout.splitlines()]
    else:
        names = [
            path for top in ("src", "tests", "bench", "tools", "docs") for path in (PROJECT / top).rglob("*")
        ]
    return tuple(path for path in names if path.is_file())


def python_files(*tops: str) -> list[Path]:
    roots = [PROJECT / top for top in tops]
    return [p for p in tracked() if p.suffix == ".py" and any(p.is_relative_to(root) for root in roots)]


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or a class."""

    name: str
    line: int
    lines: int


@dataclass(frozen=True, slots=True)
class Outline:
    """What the tests want to know of a file: its tree is not kept, and a million nodes less slow down the collector."""

    docstring: str
    functions: tuple[Definition, ...]
    classes: tuple[Definition, ...]
    top_classes: tuple[Definition, ...]
    names: tuple[tuple[str, int], ...]
    """At the top of the module, and methods of its classes, with their lines."""


@cache
def outline(path: Path) -> Outline:
    module = ast.parse(path.read_text(encoding="utf-8"))
    defined = list(_defined_in(module.body))
    return Outline(
        docstring=ast.get_docstring(module) or "",
        functions=tuple(_definition(node) for node in defined if not isinstance(node, ast.ClassDef)),
        classes=tuple(_definition(node) for node in defined if isinstance(node, ast.ClassDef)),
        top_classes=tuple(_definition(node) for node in module.body if isinstance(node, ast.ClassDef)),
        names=tuple(_names(module)),
    )


def _defined_in(statements: list[Any]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """At any depth. Only statements have them, and most nodes belong to expressions."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, None)
            if isinstance(inner, list):
                yield from _defined_in(inner)


def _definition(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Definition:
    return Definition(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1)


def _names(module: ast.Module) -> Iterator[tuple[str, int]]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        if isinstance(node, ast.ClassDef):
            methods = [m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]
            yield from ((m.name, m.lineno) for m in methods)
        if isinstance(node, ast.Assign):
            yield from ((t.id, node.lineno) for t in node.targets if isinstance(t, ast.Name))


def shown(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@cache
def words_in_source() -> Counter[str]:
    """How often each word stands in what we ship, comments and documents included."""
    count: Counter[str] = Counter()
    for path in tracked():
        is_ours = path.is_relative_to(PACKAGE) or path.is_relative_to(PROJECT / "docs")
        if is_ours and path.suffix in {".py", ".md", ".j2", ".lua", ".toml"}:
            count.update(WORD.findall(path.read_text(encoding="utf-8")))
    count.update(WORD.findall((PROJECT / "pyproject.toml").read_text(encoding="utf-8")))
    return count
