"""What the reduced search leaves out, nobody could tell apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interleavings.cells import HERE

WITHIN_S = 200.0


@pytest.mark.parametrize(
    ("store", "cancel", "program"),
    [
        ("redis_tasks:OneValue", False, "a | a"),
        ("redis_tasks:OneConnection", False, "a | a"),
        ("redis_tasks:SharedPipeline", False, "a | a"),
        ("redis_turns:LockAfterAYield", False, "a | a"),
        ("redis_turns:OneLockAfterAYield", False, "a | r"),
        ("redis_tasks:OneCommand", True, "a | r"),
        ("redis_tasks:OneConnection", True, "a | r"),
        ("redis_tasks:CancelledConnection", True, "a | r"),
        ("redis_tasks:ClosesWhenCancelled", True, "a r"),
        ("redis_tasks:LockKept", True, "a | a"),
        ("redis_tasks:SharedStream", True, "a | a"),
        ("redis_tasks:GivesUpWhenSlow", True, "a r"),
        ("postgres_tasks:shared_connection", False, "t | r"),
        ("postgres_tasks:max_then_insert", True, "t r"),
        ("sqlite_tasks:SharedTransaction", True, "a r"),
    ],
)
def test_no_outcome_is_left_out(store: str, cancel: bool, program: str, tmp_path: Path) -> None:
    target, engine = f"tests.interleavings.planted.{store}", store.partition("_")[0]
    words = [target, engine, "cancel" if cancel else "no-cancel", program, str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.interleavings.every_order", *words],
        cwd=HERE,
        timeout=WITHIN_S,
        check=True,
        capture_output=True,
        text=True,
    )
    assert not done.stdout
