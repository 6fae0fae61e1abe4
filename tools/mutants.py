"""The mutants of a module: every way to change one comparison, condition, constant or statement of a function.

A mutant is named by what it changes, not by its line: `reading.ReadFolder._settle: acknowledged >= begun: GtE → Gt`
stays the same mutant when code above it moves, and a changed expression is a new one. Text, annotations and
the wording of errors are left alone.
"""

from __future__ import annotations

import ast
import copy
import inspect
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
}
Edit = Callable[[ast.AST], None]
Steps = tuple[tuple[str, int | None], ...]


def edits(node: ast.AST) -> Iterator[tuple[str, Edit]]:
    """The ways to change one node, each as a description and a function that changes it in place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = _COMPARISONS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} → {other.__name__}", lambda n: n.ops.__setitem__(0, other())  # type: ignore[attr-defined]
    elif isinstance(node, ast.BoolOp):
        swap: type[ast.boolop] = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"→ {swap.__name__}", lambda n: setattr(n, "op", swap())
        for place in range(len(node.values)):
            yield f"drop operand {place + 1}", lambda n, at=place: _drop(n, at)  # type: ignore[misc]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "drop not", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))  # type: ignore[attr-defined]
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        arithmetic = _OPERATORS[type(node.op)]
        yield f"→ {arithmetic.__name__}", lambda n: setattr(n, "op", arithmetic())
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield f"{node.value} → {node.value + 1}", lambda n: setattr(n, "value", n.value + 1)  # type: ignore[attr-defined]
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"→ {not node.value}", lambda n: setattr(n, "value", not n.value)  # type: ignore[attr-defined]
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "negate the condition", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))  # type: ignore[attr-defined]


def _drop(node: ast.AST, place: int) -> None:
    assert isinstance(node, ast.BoolOp)
    node.values[place] = node.values[place - 1]  # an operand twice is an operand less


def _is_removable(node: ast.AST) -> bool:
    if isinstance(node, ast.Continue | ast.AugAssign):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)


class Mutant(NamedTuple):
    """One change: its name, the line it is on, the function whose code is exchanged, and that code."""

    name: str
    line: int
    function: types.FunctionType
    code: types.CodeType


def mutants(module: types.ModuleType, label: str) -> Iterator[Mutant]:
    """Every mutant of the module's functions, in a fixed order. Equal changes in one function are counted up."""
    path = str(module.__file__)
    tree = ast.parse(inspect.getsource(module))
    functions = _functions_of(module)
    names: Counter[str] = Counter()
    for steps, node in _inside_functions(tree):
        function = functions.get(_function(steps, tree))
        if function is None:
            continue
        for what, mutated in _changes(tree, steps, node):
            name = f"{label}.{function.__qualname__}: {ast.unparse(node)[:90].splitlines()[0]}: {what}"
            names[name] += 1
            if names[name] > 1:
                name += f" ({names[name]})"
            code = _code_of(mutated, function.__qualname__, path)
            yield Mutant(name, getattr(node, "lineno", 0), function, code)


def _changes(tree: ast.Module, steps: Steps, node: ast.AST) -> Iterator[tuple[str, ast.Module]]:
    for what, edit in edits(node):
        mutated = copy.deepcopy(tree)
        edit(_find(mutated, steps))
        yield what, mutated
    if _is_removable(node):
        mutated = copy.deepcopy(tree)
        name, place = steps[-1]
        getattr(_find(mutated, steps[:-1]), name)[place] = ast.copy_location(ast.Pass(), node)
        yield "remove", mutated


def _inside_functions(tree: ast.Module) -> Iterator[tuple[Steps, ast.AST]]:
    stack: list[tuple[Steps, ast.AST, bool]] = [((), tree, False)]
    while stack:
        path, node, inside = stack.pop()
        if inside and not _is_text(node):
            yield path, node
        inside = inside or isinstance(node, ast.FunctionDef)
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "returns", "annotation", "args"):
                continue
            if isinstance(value, list):
                children = [((name, at), child) for at, child in enumerate(value)]
            else:
                children = [((name, None), value)]
            stack += [
                ((*path, step), child, inside)
                for step, child in children
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Raise)
            ]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _find(tree: ast.AST, path: Steps) -> ast.AST:
    node = tree
    for name, place in path:
        value = getattr(node, name)
        node = value if place is None else value[place]
    return node


def _function(path: Steps, tree: ast.Module) -> str:
    names: list[str] = []
    node: ast.AST = tree
    for name, place in path:
        value = getattr(node, name)
        node = value if place is None else value[place]
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.FunctionDef):
            names.append(node.name)
            break
    return ".".join(names)


def _functions_of(module: types.ModuleType) -> dict[str, types.FunctionType]:
    found: dict[str, types.FunctionType] = {}
    for value in vars(module).values():
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            found[value.__qualname__] = value
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for member in vars(value).values():
                function = member.fget if isinstance(member, property) else member
                if isinstance(function, types.FunctionType):
                    found[function.__qualname__] = function
    return found


def _code_of(tree: ast.Module, name: str, path: str) -> types.CodeType:
    stack = [compile(ast.fix_missing_locations(tree), path, "exec")]
    while stack:
        code = stack.pop()
        if code.co_qualname == name:
            return code
        stack += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    raise LookupError(f"{name} is not in {path}: was the file changed while it was imported?")
