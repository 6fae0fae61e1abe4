"""Two bugs that are called the same are two findings; one bug is one, in however many cells it shows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("store", "found"),
    [
        ("both", [("duplicate", {"none"}), ("duplicate", {"lost-ack"})]),
        ("tools_twice", [("duplicate", {"none"})]),
        ("retried", [("duplicate", {"lost-ack"})]),
    ],
)
def test_two_bugs_of_one_name(tmp_path: Path, store: str, found: list[tuple[str, set[str]]]) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "recollect", "verify", f"tests.verify.one_name:{store}"),
            *(
                "--engine",
                "redis",
                "--policy",
                "aof-always",
                "--seed",
                "5",
                "--budget",
                "300s",
                "--no-confirm",
            ),
            *(
                "--fault",
                "none@one-writer",
                "--fault",
                "lost-ack",
                "--workload",
                "turns",
                "--workload",
                "contents",
            ),
            *("--json", str(report), "--out", str(tmp_path / "run")),
        ],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(report.read_text())
    faults = {cell["fault"] for cell in document["cells"]}
    assert faults == {"none", "lost-ack"}
    told = [
        (finding["name"], {fault for fault in faults for cell in finding["cells"] if f" {fault} " in cell})
        for finding in document["findings"]
    ]
    assert told == found, document["findings"]
