"""What pytest wants to be said at the top: the plugin that runs pytest inside of tests.

Tests start hundreds of processes. Where the environment forbids bytecode files, as images of Python do, each of them
would compile everything it imports.

Thousands of collected tests stay in memory; the garbage collector need not walk through them again and again.

How long an example of Hypothesis takes says something about the machine's other users, nothing about the code.
"""

import gc
import os
import sys
import zlib

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

pytest_plugins = ["pytester"]

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Long values get short names: the name is in the environment of every process that a test starts."""
    return f"{len(val)} long" if isinstance(val, str | bytes) and len(val) > 500 else None


LAST = ("tests/checkers/", "tests/contract/")
"""Two thousand short tests. Workers share them out evenly at the end, where one long test keeps all others waiting."""
WORKERS_OF = {"tests/planted/": 4, "tests/recall/": 1}
"""Folders whose tests share what takes seconds to start: a process with every store imported, a server of Chroma."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share an engine stay on one worker: else each worker starts its own for a few of them."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and (group := _group_of(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.nodeid.startswith(LAST))


def _group_of(item: pytest.Item) -> str | None:
    for folder, workers in WORKERS_OF.items():
        if item.nodeid.startswith(folder):
            return f"{folder}{zlib.crc32(item.nodeid.encode()) % workers}"
    fixtures = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    of_file = any(each[-1].scope == "module" and each[-1].baseid.startswith("tests/") for each in fixtures)
    return f"{item.path.parent.name}/{item.path.stem}" if of_file else None


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why each test that was run again had failed: it may pass for months before it fails again."""
    for report in terminalreporter.getreports("rerun"):
        lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
        terminalreporter.write_line(f"run again: {report.nodeid}")
        terminalreporter.write_line("\n".join(lines[:6]) or report.longreprtext[-500:])
