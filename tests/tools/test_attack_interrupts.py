"""The attack by interrupts runs, and finds what it is for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tools.attack import interrupts
from tools.attack.assault import Assault

pytestmark = pytest.mark.skipif("RECOLLECT_FULL_TOOLS" not in os.environ, reason="set RECOLLECT_FULL_TOOLS=1")

CARELESS = """
import os, signal, sys, tempfile, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
time.sleep(0.3)
{handler}
made = tempfile.mkdtemp()
os.makedirs("runs/empty")
try:
    time.sleep(60)
except KeyboardInterrupt:
    {end}
"""
DEFAULT = "signal.signal(signal.SIGINT, signal.default_int_handler)"
TIDY = "os.rmdir(made); os.removedirs('runs/empty'); sys.exit(3)"
PLANTED = {
    "a traceback": (DEFAULT, "raise"),
    "left behind: ": (DEFAULT, "sys.exit(3)"),
    "exit code 1": (DEFAULT, TIDY.replace("exit(3)", "exit(1)")),
    "did not end": ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "raise"),
}


def interrupted(tmp_path: Path, handler: str, end: str) -> Assault:
    script = tmp_path / "careless.py"
    script.write_text(CARELESS.format(handler=handler, end=end))
    assault = Assault(120.0, seed=1)
    command = interrupts.Command(("sleep",), takes_s=0.0)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(interrupts, "END_TIMEOUT_S", 5.0)
        changed.setattr(assault.rng, "uniform", lambda low, high: 1.5)
        changed.setattr(assault.rng, "choice", lambda times: 1)
        interrupts.interrupt(assault, tmp_path, (sys.executable, str(script)), command)
    return assault


@pytest.mark.parametrize("found", PLANTED)
def test_a_careless_program_is_found(tmp_path: Path, found: str) -> None:
    assault = interrupted(tmp_path, *PLANTED[found])
    assert any(found in told for told in assault.findings), assault.findings


def test_a_tidy_program_is_not_accused(tmp_path: Path) -> None:
    assault = interrupted(tmp_path, DEFAULT, TIDY)
    assert assault.findings == []
    assert assault.counts["interrupts"] == 1


def test_commands_of_ours() -> None:
    """A sample; `python -m tools.attack interrupts` has them all."""
    assault = Assault(240.0, seed=3, limit=3)
    interrupts.attack(assault)
    assert assault.findings == []
    assert assault.counts["interrupts"] == 3
