"""The project's own files, as the tidy tests read them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def classes(path: Path) -> Iterator[ast.ClassDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            yield node


def lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


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
