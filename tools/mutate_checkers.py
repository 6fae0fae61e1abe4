"""Mutation testing of the checkers: change one thing in the judging code, and see whether a test notices.

`python tools/mutate_checkers.py [--only MODULE] [--every N]` goes through every comparison, condition,
constant and statement of the judging modules, one mutant at a time. Each mutant runs in a forked child, in which
only the code object of the mutated function is exchanged, against the hand-written tests and a sample of valid
and planted histories that were generated once. So a mutant costs a fraction of a second instead of a pytest run.
A mutant that no test notices is printed with its line.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import inspect
import io
import os
import signal
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 30
VALID = 60
VARIANTS = 8
TEST_MODULES = (
    "test_losses",
    "test_elements",
    "test_order",
    "test_retention",
    "test_verdict",
    "test_saved_histories",
)
MODULES = (
    "reading",
    "collect",
    "retention",
    "losses",
    "survivors",
    "context",
    "proof",
    "verdict",
    "coverage",
    "sessions",
    "evidence",
    "finding",
)
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


def mutants(tree: ast.Module) -> Iterator[tuple[str, str, ast.Module]]:
    """Yield (function, description, mutated module) for every change inside a function."""
    for path, node in _inside_functions(tree):
        line = getattr(node, "lineno", 0)
        for what, edit in edits(node):
            mutated = copy.deepcopy(tree)
            edit(_find(mutated, path))
            yield _function(path, tree), f"line {line}: {what}", mutated
        if _is_removable(node):
            mutated = copy.deepcopy(tree)
            parent = _find(mutated, path[:-1])
            name, place = path[-1]
            getattr(parent, name)[place] = ast.copy_location(ast.Pass(), node)
            yield _function(path, tree), f"line {line}: remove {ast.unparse(node)[:60]}", mutated


Steps = tuple[tuple[str, int | None], ...]


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


def functions_of(module: types.ModuleType) -> dict[str, types.FunctionType]:
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


def code_of(tree: ast.Module, name: str, path: str) -> types.CodeType | None:
    stack = [compile(ast.fix_missing_locations(tree), path, "exec")]
    while stack:
        code = stack.pop()
        if code.co_qualname == name:
            return code
        stack += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return None


class Suite:
    """The tests, prepared once: functions to call, and histories with what must come of them."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT))
        plants = importlib.import_module("tests.checkers.history_plants")
        simulator = importlib.import_module("tests.checkers.history_simulator")
        self.truth = importlib.import_module("tests.checkers.witness_truth")
        self.analyze = importlib.import_module("recollect.verify.analyze").analyze
        self.valid = [simulator.valid_history(seed) for seed in range(VALID)]
        self.planted = [plant(seed) for seed in range(VARIANTS) for plant in plants.PLANTS.values()]
        self.functions = [call for name in TEST_MODULES for call in _calls(f"tests.checkers.{name}")]

    def run(self) -> None:
        for call in self.functions:
            call()
        for planted in self.planted:
            verdict = self.analyze(planted.history)
            assert [anomaly.name for anomaly in verdict.anomalies] == [planted.name]
            assert verdict.status == "violated"
            witness = verdict.anomalies[0].first.message
            assert not (planted.messages and witness) or int(witness[1:]) in planted.messages
            self.truth.check_witness(planted.history, verdict.anomalies[0])
        for history in self.valid:
            verdict = self.analyze(history)
            assert not verdict.anomalies
            assert verdict.acked == verdict.kept + verdict.forgotten + verdict.unchecked
            assert min(verdict.kept, verdict.forgotten, verdict.unchecked) >= 0


def _calls(module_name: str) -> Iterator[Callable[[], None]]:
    module = importlib.import_module(module_name)
    for name, function in vars(module).items():
        if not name.startswith("test_"):
            continue
        wanted = set(inspect.signature(function).parameters)
        cases: list[dict[str, object]] = [{}]
        for mark in getattr(function, "pytestmark", []):
            if mark.name == "parametrize":
                names, rows = mark.args
                if isinstance(names, str):
                    names, rows = (names,), [(row,) for row in rows]
                cases = [dict(zip(names, row, strict=True)) for row in rows]
        for case in cases:
            if wanted - case.keys() <= {"tmp_path"}:
                yield _call(function, case, "tmp_path" in wanted)


def _call(function: Callable[..., None], case: dict[str, object], needs_folder: bool) -> Callable[[], None]:
    def call() -> None:
        with contextlib.ExitStack() as stack:
            folder = {}
            if needs_folder:
                folder["tmp_path"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            function(**case, **folder)

    return call


def survives(suite: Suite, function: types.FunctionType, code: types.CodeType) -> bool:
    """Whether no test notices that the function has this code."""
    child = os.fork()
    if child == 0:
        signal.alarm(TIMEOUT_S)
        sys.stderr = io.StringIO()
        try:
            function.__code__ = code
            suite.run()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="a module of recollect.verify, e.g. reading")
    parser.add_argument("--every", type=int, default=1, help="only every n-th mutant, for a quick score")
    options = parser.parse_args()
    names = options.only or [
        *MODULES,
        *(
            f"checkers.{path.stem}"
            for path in sorted((ROOT / "src/recollect/verify/checkers").glob("*.py"))
            if path.stem != "__init__"
        ),
    ]
    suite = Suite()
    suite.run()
    total = killed = number = 0
    for name in names:
        module = importlib.import_module(f"recollect.verify.{name}")
        path = str(module.__file__)
        functions = functions_of(module)
        here = killed_here = 0
        for function, what, tree in mutants(ast.parse(Path(path).read_text())):
            code = code_of(tree, function, path) if function in functions else None
            number += code is not None
            if code is None or number % options.every:
                continue
            here += 1
            if survives(suite, functions[function], code):
                print(f"survived: {name}.{function}, {what}", flush=True)
            else:
                killed_here += 1
        total, killed = total + here, killed + killed_here
        print(f"{name}: {killed_here} of {here} killed", flush=True)
    print(f"{killed} of {total} mutants killed ({100 * killed / max(1, total):.1f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
