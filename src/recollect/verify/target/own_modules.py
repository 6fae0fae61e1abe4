"""Which modules are a target's own, and which libraries they import: read from their source, without running it.

What a module makes when it is imported (an id of its process, a counter, a thread) is that process's own. If it were
imported once and workers forked from there, two workers would have one id and none the thread: a correct store would
overwrite what it has written, or wait for ever. So every worker imports the target's own modules itself, and only the
libraries, which take most of the time, are imported once.

Own is what is in the target's top package or, if that is not installed, beside it. An import inside a function is not
looked for: it happens when the function is called.
"""

import ast
import contextlib
import importlib.util
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import NamedTuple

PRELOADED, SEPARATOR = "RECOLLECT_PRELOAD", ","
"""The environment variable that tells the fork server what to import, and what is between two of the names."""
MARK = ":"
"""Behind a module's name: only the libraries that it imports are meant."""
INSTALLED = ("site-packages", "dist-packages")


class Library(NamedTuple):
    """``import module``, or ``from module import names``."""

    module: str
    names: tuple[str, ...]


def libraries_of(module: str) -> list[Library]:
    """What the target's module and its other own modules import from elsewhere, in the order of their source."""
    found: dict[Library, None] = {}
    waiting, looked_at = [module], {module}
    while waiting:
        for one in _imports_in(waiting.pop()):
            if not is_own(one.module, module):
                found[one] = None
                continue
            mine = (one.module, *(f"{one.module}.{name}" for name in one.names))
            waiting += [name for name in mine if name not in looked_at]
            looked_at.update(mine)
    return list(found)


def is_own(name: str, module: str) -> bool:
    """Whether `name` is a module of the target whose factory is in `module`."""
    top, target = _top(name), _top(module)
    if top == target:
        return True
    home = _home(target)
    return home is not None and home.name not in INSTALLED and home == _home(top)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _home(top: str) -> Path | None:
    """The folder that a module without a package is imported from."""
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(top)
        if found is not None and found.origin is not None and found.has_location:
            file = Path(found.origin)
            return file.parent.parent if found.submodule_search_locations else file.parent
    return None


def _imports_in(name: str) -> Iterator[Library]:
    """What is imported by a module and by the packages that it is in; nothing if there is no source."""
    for spec in _specs(name):
        with contextlib.suppress(OSError, ValueError, SyntaxError, ImportError):
            tree = ast.parse(Path(spec.origin or "").read_bytes())
            package = spec.name if spec.submodule_search_locations is not None else spec.parent or ""
            yield from _imported(tree.body, package)


def _specs(name: str) -> Iterator[ModuleSpec]:
    """The module's packages and the module. Only the first is asked of Python, which would import them to find more."""
    top, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return
    for part in inner:
        if spec is None:
            return
        yield spec
        spec = PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations or [])
    if spec is not None:
        yield spec


def _imported(body: list[ast.stmt], package: str) -> Iterator[Library]:
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (Library(alias.name, ()) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            relative = "." * statement.level + (statement.module or "")
            names = tuple(alias.name for alias in statement.names)
            yield Library(importlib.util.resolve_name(relative, package), names)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
            yield from _imported(inner, package)
