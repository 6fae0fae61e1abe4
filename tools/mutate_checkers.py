"""Mutation testing of the checkers: change one thing in the judging code, and see whether a test notices.

`python tools/mutate_checkers.py [--only MODULE] [--every N] [--resume FILE]` goes through the mutants
of the judging modules (see mutants.py). Each runs in a forked child, in which only the code object of the mutated
function is exchanged, against the hand-written tests of `tests/checkers` and a sample of the valid and planted
histories, which are generated once. So a mutant costs a fraction of a second instead of a pytest run; the test
that killed the last mutant of the same function goes first. A child that needs far more processor time or memory
than the unchanged code counts as killed.

Mutants that no history can tell from the original are listed in `equivalent_mutants.txt`, each with the reason;
they still run, and one that a test does kill, or that no longer exists, is an error. The score is of the
others. With `--resume FILE` the killed mutants of unchanged modules are remembered: the way to work on survivors,
not for the score.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
SLOWDOWN_MAX = 8
MEMORY_EXTRA_BYTES = 1 << 30
VALID = 60
VARIANTS = 8
# The first is sampled below, the second is of other modules.
TESTS_LEFT_OUT = ("test_tester", "test_guarantees")
TESTS_TOO_SLOW = ("test_a_long_session_read_often_stays_small", "test_random_histories_survive_the_disk")
MODULES = (
    "folding_reads",
    "gathering",
    "retention",
    "removals",
    "half_changes",
    "losses",
    "culprits",
    "lateness",
    "survivors",
    "context_reads",
    "order_proof",
    "verdict",
    "coverage",
    "session_state",
    "evidence",
    "detection",
)


class Test(NamedTuple):
    name: str
    call: Callable[[], None]


class Suite:
    """The tests, prepared once: functions to call, and histories with what must come of them."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT))
        plants = importlib.import_module("tests.checkers.history_plants").PLANTS
        valid = importlib.import_module("tests.checkers.history_simulator").valid_history
        self._check_witness = importlib.import_module("tests.checkers.witness_truth").check_witness
        self._analyze = importlib.import_module("recollect.verify.judging.analyze").analyze
        self.tests = [test for name in _test_modules() for test in _tests(name)]
        for seed in range(VARIANTS):
            self.tests += [
                _bound(f"planted {name} {seed}", self._planted, plants[name](seed)) for name in plants
            ]
        self.tests += [_bound(f"valid {seed}", self._valid, valid(seed)) for seed in range(VALID)]
        started_s = time.process_time()
        for test in self.tests:
            test.call()
        self.cpu_s = time.process_time() - started_s

    def _planted(self, planted) -> None:  # type: ignore[no-untyped-def]
        verdict = self._analyze(planted.history)
        assert [anomaly.name for anomaly in verdict.anomalies] == [planted.name]
        assert verdict.status == "violated"
        witness = verdict.anomalies[0].first.message
        assert not (planted.messages and witness) or int(witness[1:]) in planted.messages
        self._check_witness(planted.history, verdict.anomalies[0])

    def _valid(self, history: object) -> None:
        verdict = self._analyze(history)
        assert not verdict.anomalies
        assert verdict.acked == verdict.kept + verdict.forgotten + verdict.unchecked
        assert min(verdict.kept, verdict.forgotten, verdict.unchecked) >= 0


def _bound(name: str, function: Callable[[object], None], value: object) -> Test:
    return Test(name, lambda: function(value))


def _test_modules() -> list[str]:
    found = sorted((ROOT / "tests/checkers").glob("test_*.py"))
    return [path.stem for path in found if path.stem not in TESTS_LEFT_OUT]


def _tests(module_name: str) -> Iterator[Test]:
    """The test functions of a module with no fixtures but the two of `_call`, one per row of their parameters."""
    module = importlib.import_module(f"tests.checkers.{module_name}")
    for name, function in vars(module).items():
        if not name.startswith("test_") or name in TESTS_TOO_SLOW or hasattr(function, "hypothesis"):
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
            fixtures = wanted - case.keys()
            if fixtures <= {"tmp_path", "monkeypatch"}:
                yield Test(f"{module_name}.{name}", _call(function, case, fixtures))


def _call(function: Callable[..., None], case: dict[str, object], fixtures: set[str]) -> Callable[[], None]:
    def call() -> None:
        with contextlib.ExitStack() as stack:
            given = dict(case)
            if "tmp_path" in fixtures:
                given["tmp_path"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if "monkeypatch" in fixtures:
                given["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            function(**given)

    return call


def killer(suite: Suite, mutant: Mutant, hint: int | None) -> int | None:
    """The place of the test that notices the mutant, or None; `hint` is a test to try first."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(suite, mutant, hint, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read().split()
    _, status = os.waitpid(child, 0)
    if status == 0:
        return None
    return int(said[-1]) if said else -1


def _run_child(suite: Suite, mutant: Mutant, hint: int | None, pipe: int) -> None:
    signal.setitimer(signal.ITIMER_PROF, 2.0 + SLOWDOWN_MAX * suite.cpu_s)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_EXTRA_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.stderr = io.StringIO()
    mutant.function.__code__ = mutant.code
    order = [*([] if hint is None else [hint]), *range(len(suite.tests))]
    for place in order:
        try:
            suite.tests[place].call()
        except BaseException:
            os.write(pipe, f"{place} ".encode())
            os._exit(1)
    os._exit(0)


class Ledger:
    """What earlier runs killed; a line per mutant, keyed by the source it was made from."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._killed: set[str] = set()
        if path is not None and path.exists():
            self._killed = {json.loads(line) for line in path.read_text().splitlines()}

    def has(self, mutant: Mutant) -> bool:
        return self._path is not None and _key(mutant) in self._killed

    def add(self, mutant: Mutant) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(_key(mutant)) + "\n")


def _key(mutant: Mutant) -> str:
    source = Path(mutant.function.__code__.co_filename).read_bytes()
    return f"{hashlib.blake2b(source, digest_size=6).hexdigest()} {mutant.name}"


def equivalents() -> dict[str, str]:
    """Mutant → why nothing can tell it from the original. A reason stands above the mutants it is true of."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in EQUIVALENT.read_text().splitlines() if EQUIVALENT.exists() else ():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            reasons[line] = reason
    return reasons


def module_names() -> list[str]:
    folder = ROOT / "src/recollect/verify/judging/checkers"
    return [
        *MODULES,
        "checkers",
        *(f"checkers.{p.stem}" for p in sorted(folder.glob("*.py")) if p.stem[0] != "_"),
    ]


class Score:
    """Counts, and what has to be said about a mutant."""

    def __init__(self, excused: dict[str, str]) -> None:
        self.excused = excused
        self.killed = self.survived = self.equivalent = self.wrong = 0

    def take(self, mutant: Mutant, is_killed: bool) -> None:
        if mutant.name in self.excused:
            self.equivalent += 1
            if is_killed:
                self.wrong += 1
                print(f"listed as equivalent, but killed: {mutant.name}", flush=True)
        elif is_killed:
            self.killed += 1
        else:
            self.survived += 1
            print(f"survived (line {mutant.line}): {mutant.name}", flush=True)

    def __str__(self) -> str:
        total = self.killed + self.survived
        percent = 100 * self.killed / max(1, total)
        return f"{self.killed} of {total} mutants killed ({percent:.1f} %), {self.equivalent} equivalent"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", action="append", help="a module of recollect.verify.judging, e.g. gathering"
    )
    parser.add_argument("--every", type=int, default=1, help="only every n-th mutant, for a quick score")
    parser.add_argument("--resume", type=Path, help="a file that remembers killed mutants between runs")
    options = parser.parse_args()
    suite, ledger, score = Suite(), Ledger(options.resume), Score(equivalents())
    hints: dict[str, int] = {}
    number, names = 0, set()
    for name in options.only or module_names():
        before = score.killed, score.survived
        for mutant in mutants(importlib.import_module(f"recollect.verify.judging.{name}"), name):
            names.add(mutant.name)
            number += 1
            if number % options.every:
                continue
            place = (
                -1 if ledger.has(mutant) else killer(suite, mutant, hints.get(mutant.function.__qualname__))
            )
            if place is not None and place >= 0:
                hints[mutant.function.__qualname__] = place
                ledger.add(mutant)
            score.take(mutant, place is not None)
        killed, survived = score.killed - before[0], score.survived - before[1]
        print(f"{name}: {killed} of {killed + survived} killed", flush=True)
    gone = [] if options.only else sorted(score.excused.keys() - names)
    for name in gone:
        print(f"listed as equivalent, but there is no such mutant: {name}")
    print(score)
    return 1 if gone or score.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
