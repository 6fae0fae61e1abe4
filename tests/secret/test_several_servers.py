"""Commands that are for one server, given the address of several: one sentence with the next step, and no password."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PASSWORD = "hunter2-unseen"
CLUSTER = f"redis+cluster://app:{PASSWORD}@127.0.0.1:1,127.0.0.1:2"
SENTINEL = f"redis+sentinel://app:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/memory"
BAD_PORT = f"redis://app:{PASSWORD}@127.0.0.1:99999/0"


@pytest.mark.parametrize(
    ("arguments", "next_step"),
    [
        (
            ["watch", "--once", SENTINEL, "--replica", CLUSTER],
            "give each primary that CLUSTER NODES names",
        ),
        (
            ["watch", "--once", CLUSTER, "--replica", SENTINEL],
            "give the primary that SENTINEL GET-MASTER-ADDR-BY-NAME names",
        ),
        (["watch", "--once", "http://127.0.0.1:1"], "use sqlite:///file.db, redis://… or postgresql://…"),
        (["audit", "memory.db"], "memory.db is not an address of a store; use sqlite:///file.db"),
        (["audit", BAD_PORT], "its port is not a number up to 65535"),
        (["watch", "--once", BAD_PORT], "its port is not a number up to 65535"),
        (["doctor", BAD_PORT], "its port is not a number up to 65535"),
        (["erase", BAD_PORT, "session", "--yes"], "its port is not a number up to 65535"),
    ],
)
def test_is_refused_with_the_next_step(arguments: list[str], next_step: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from recollect.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "1000"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert next_step in said
    assert "Traceback" not in said
    assert PASSWORD not in said
    assert not list(tmp_path.iterdir()), "nothing is left behind"
