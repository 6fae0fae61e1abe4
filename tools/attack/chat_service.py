"""The chat service as the attacks start it: on a file of its own, with nothing that needs a network."""

from __future__ import annotations

import sys
from pathlib import Path

from recollect.verify.suite.service import Service

PROGRAM: tuple[str, ...] = (sys.executable, "-m", "recollect")
"""The tests put planted ones in its place."""


def service_in(place: Path) -> Service:
    words = ("chat", "--memory", f"sqlite:///{place / 'memory.db'}", "--index", "none", "--allow-ephemeral")
    return Service([*PROGRAM, *words, "--port", "{port}"], place, start_timeout_s=60.0)
