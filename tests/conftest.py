"""What pytest wants to be said at the top: the plugin that runs pytest inside of tests.

Tests start hundreds of processes. Where the environment forbids bytecode files, as images of Python do, each of them
would compile everything it imports.

Thousands of collected tests stay in memory; the garbage collector need not walk through them again and again.

How long an example of Hypothesis takes says something about the machine's other users, nothing about the code.
"""

import gc
import os
import sys

from hypothesis import HealthCheck, settings

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

pytest_plugins = ["pytester"]

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Long values get short names: the name is in the environment of every process that a test starts."""
    return f"{len(val)} long" if isinstance(val, str | bytes) and len(val) > 500 else None


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
