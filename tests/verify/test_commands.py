"""The command line from outside: what it prints, what it writes, and how it exits."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from recollect import Message
from recollect.cli import COMMANDS, build, main
from recollect.sync import open_store
from recollect.verify.matrix.selection import CORE_FAULTS
from recollect.verify.running.faults import FAULTS

RECOLLECT = [sys.executable, "-m", "recollect"]


ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parent.parent.parent), "COLUMNS": "160"}


def recollect(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(
        [*RECOLLECT, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, env=environment
    )


def in_this_process(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, cwd: Path
) -> "subprocess.CompletedProcess[str]":
    """The same without starting Python, which takes longer than saying what is wrong."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    monkeypatch.chdir(cwd)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["recollect", *arguments])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        signal.signal(signal.SIGINT, handler)
    for stream in streams:
        stream.seek(0)
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(arguments, ended.value.code, streams[0].read(), streams[1].read())


def cells(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(output)["cells"]
    return found


def test_a_documented_loss_is_said_and_exits_0(tmp_path: Path) -> None:
    done = recollect(
        "verify", "redis", "--policy", "rdb", "--fault", "kill-engine", "--json", "-", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (cell,) = cells(done.stdout)
    assert cell["status"] == "documented-loss"
    assert cell["lost"] > 0
    assert cell["acked"] == cell["kept"] + cell["lost"] + cell["forgotten"] + cell["unchecked"]
    assert set(cell) >= {
        "target", "engine", "engine_version", "provider", "policy", "fault", "workload", "status", "acked", "kept",
        "lost", "unknown_outcomes", "loss_window_s", "promise", "anomalies", "history", "replay", "reason",
    }  # fmt: skip
    assert cell["anomalies"][0]["first"]["session"]
    assert (tmp_path / cell["history"]).exists()
    required = recollect(
        "verify", "redis", "--policy", "rdb", "--fault", "kill-engine", "--require", "written", cwd=tmp_path
    )
    assert required.returncode == 1

    folder = str(Path(cell["history"]).parent)
    strict = recollect("report", folder, "--strict", cwd=tmp_path)
    assert (strict.returncode, "✗ --strict: 1 documented-loss" in strict.stdout) == (1, True)
    again = recollect("report", folder, "--json", "-", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert cells(again.stdout)[0]["lost"] == cell["lost"], (
        "judged again, without an engine, the verdict is the same"
    )


def test_a_violation_exits_1_names_the_message_and_can_be_replayed(tmp_path: Path) -> None:
    target = "tests.planted.whole_list_overwritten:factory"
    done = recollect(
        "verify", target, "--engine", "redis", "--policy", "aof-always", "--fault", "concurrent-writers",
        "--workload", "rewrite", "--budget", "40s", "--json", "out.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lost-update" in done.stdout
    assert "confirmed" in done.stdout
    (cell,) = cells((tmp_path / "out.json").read_text())
    assert cell["reproduced"] is not None
    (finding,) = json.loads((tmp_path / "out.json").read_text())["findings"]
    assert finding["replay"] in [line.strip() for line in done.stdout.splitlines()], (
        "in one piece, to be copied"
    )
    replayed = recollect(*finding["replay"].split()[1:], "--times", "10", cwd=tmp_path)
    assert "lost-update: seen in" in replayed.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify", "redis", "--fault", "kill-engin"], "did you mean 'kill-engine'"),
        (["verify", "redis", "--fault", "cut+latancy"], "did you mean 'latency'"),
        (["verify", "redis", "--fault", ""], "unknown fault ''; known:"),
        (["verify", "redis", "--fault", "gremlins"], "unknown fault 'gremlins'; known: none, restart,"),
        (["verify", "redis", "--policy", "aof"], "unknown policy"),
        (["verify", "no.such:thing", "--engine", "redis"], "no module"),
        (["verify", "tests.verify.stores:raises", "--engine", "sqlite"], "no database configured"),
        (["verify", "tests.verify.stores:shapeless", "--engine", "sqlite"], "no known shape"),
        (
            ["verify", "tests.verify.stores:returns_nothing", "--engine", "sqlite"],
            "The factory returned None",
        ),
        (
            ["verify", "tests.verify.stores:ends_at_once", "--engine", "sqlite"],
            "stores:ends_at_once': the target's",
        ),
        (["verify", "redis", "--out", "/proc/none"], "cannot write to /proc/none"),
        (["verify", "redis", "--json", "."], "cannot write .: Is a directory"),
        (["verify", "redis", "--html", "."], "cannot write .: Is a directory"),
        (
            ["verify", "redis", "--junit", "/dev/null/out.xml"],
            "cannot write /dev/null/out.xml: Not a directory",
        ),
        (["verify", "redis", "--shard", "3/2"], "shard"),
        (["verify", "redis", "--baseline", "before.json"], "--baseline before.json: No such file"),
        (
            ["verify", "redis", "--engine", "redis@6", "--engine", "postgres"],
            "--engine postgres: none of redis",
        ),
        (
            ["verify", "postgres", "--engine", "postgres_ha"],
            "runs on postgres or postgres-ha or patroni, not on",
        ),
        (["export", "memory.db"], "the address has no scheme; use one of sqlite,"),
        (["export", "postgresql://bob:secret@localhost:1/memory"], "PostgreSQL: localhost:1: "),
        (["verify", "redis", "--budget", "soon"], "60s"),
        (["verify", "redis", "--budget", "10"], "'10': a number with ms, s, m, h or d, such as 60s or 7d"),
        (["verify", "redis", "--require", "gold"], "written or fsynced"),
        (
            ["verify", "redis", "--require", "fsynced", "--require", "written"],
            "--require is given 2 times (fsynced, written)",
        ),
        (["verify", "redis", "--previous", "old"], "--previous 'old': the factory of the other release"),
        (
            ["verify", "redis", "--previous", "no.such:thing"],
            "--previous: target 'no.such:thing': no module 'no'",
        ),
        (
            [
                "verify",
                "tests.verify.stores:in_file",
                "--engine",
                "sqlite",
                "--previous",
                "tests.verify.stores:nope",
            ],
            "--previous: target 'tests.verify.stores:nope': tests.verify.stores has no 'nope'",
        ),
        (
            ["verify", "redis", "--provider", "redis://127.0.0.1:1/0"],
            "redis://127.0.0.1:1/0 cannot be used: [Errno 111] Connection refused",
        ),
        (["explore", "redis", "--seconds", "3"], "--seconds belongs to --interleavings"),
        (["explore", "redis", "--bound", "0"], "--bound belongs to --interleavings"),
        (["report", "no-such-folder"], "no-such-folder"),
        (["report", ".", "--require", "gold"], "written or fsynced"),
        (["replay", "no-such-folder"], "not the folder of a cell: no scenario.json in it"),
        (["verify", "redis", "--fault", "kill-engine@bgsve"], "(did you mean 'bgsave'?)"),
        (["report", __file__], "test_commands.py is not a history: line 1:"),
        (
            ["verify", "tests.verify.raises_at_import:make", "--engine", "sqlite"],
            "importing tests.verify.raises_at_import raised RuntimeError: SECRET_KEY is not set",
        ),
        (
            ["verify", "tests.verify.ends_at_import:make", "--engine", "sqlite"],
            "the target's process ended on its own (exit code 5) when it was opened",
        ),
    ],
    ids=lambda value: " ".join(value[1:])[:40] if isinstance(value, list) else "",
)
def test_wrong_usage_exits_2_with_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    done = in_this_process(monkeypatch, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in " ".join((done.stdout + done.stderr).replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert "seed" not in done.stdout, "no run, no seed"
    assert "; known:" not in done.stderr or max(map(len, done.stderr.splitlines())) <= 80


def test_a_full_disk_hides_no_violation(tmp_path: Path) -> None:
    history = (
        Path(__file__).parent.parent / "histories/checkers/corrupted--all-texts-changed-is-no-reset.jsonl"
    )
    done = recollect("report", str(history), "--html", "/dev/full", cwd=tmp_path)
    assert "cannot write /dev/full: No space left on device" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", ["engines", "doctor memory.db", "audit memory.db", "export memory.db"])
def test_a_full_disk_under_standard_output_is_no_bug(tmp_path: Path, arguments: str) -> None:
    with open_store(f"sqlite:///{tmp_path}/memory.db") as store:
        store.append("s", [Message("user", "hello")])
    url = f"sqlite:///{tmp_path}/memory.db"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*RECOLLECT, *arguments.replace("memory.db", url).split()],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_target_prints_when_it_is_imported_is_not_in_the_document(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("print('garbage')\nfrom tests.verify.stores import in_file\n")
    done = recollect(
        "verify", "loud:in_file", "--engine", "sqlite", "--policy", "wal-full", "--fault", "kill-app",
        "--workload", "append", "--json", "-", cwd=tmp_path,
    )  # fmt: skip
    assert cells(done.stdout)[0]["status"] == "held", done.stderr


def test_an_engine_that_is_missing_makes_the_cells_of_one_s_own_store_skipped(tmp_path: Path) -> None:
    done = recollect(
        "verify", "tests.verify.stores:articles", "--engine", "redis@99", "--fault", "kill-engine",
        "--json", "new/folder/out.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    found = cells((tmp_path / "new/folder/out.json").read_text())
    assert {cell["status"] for cell in found} == {"skipped"}
    assert "docker pull redis:99" in found[0]["reason"]


def test_fail_fast_says_what_it_left_out(tmp_path: Path) -> None:
    done = recollect(
        "verify", "tests.planted.whole_list_overwritten:factory", "--engine", "redis", "--policy", "aof-always",
        "--fault", "concurrent-writers", "--fault", "kill-app", "--fault", "pause", "--workload", "rewrite",
        "--workers", "1", "--fail-fast", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--fail-fast: an earlier cell was violated" in " ".join(done.stdout.split())


def test_nothing_concluded_exits_3(tmp_path: Path) -> None:
    done = recollect("verify", "sqlite", "--fault", "pause", cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    assert "skipped" in done.stdout


def test_a_bad_target_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    done = recollect(
        "verify", "sqlite", "tests.verify.stores:raises", "--engine", "sqlite", "--policy", "wal-full",
        "--fault", "kill-app", "--json", "-", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    found = {cell["target"]: cell for cell in cells(done.stdout)}
    assert found["sqlite"]["status"] == "held"
    assert found["tests.verify.stores:raises"]["status"] == "unknown"


def test_shards_are_merged(tmp_path: Path) -> None:
    for index in ("1", "2"):
        recollect(
            "verify", "sqlite", "--policy", "wal-full", "--fault", "kill-app", "--fault", "restart",
            "--shard", f"{index}/2", "--seed", "5", "--out", f"runs/shard{index}", cwd=tmp_path,
        )  # fmt: skip
    for words in (["runs/shard1", "runs/shard2"], ["runs"], ["."]):
        merged = recollect("report", *words, "--json", "-", cwd=tmp_path)
        assert merged.returncode == 0, merged.stderr
        assert {cell["fault"] for cell in cells(merged.stdout)} == {"kill-app", "restart"}


def test_a_shard_without_cells_is_no_failure_and_merges(tmp_path: Path) -> None:
    for index in (1, 2):
        done = recollect(
            "verify", "sqlite", "--policy", "wal-full", "--fault", "kill-app", "--workload", "append",
            "--seed", f"{index}", "--shard", f"{index}/2", "--out", f"shard{index}", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert "shard 2/2 has no cells" in " ".join(done.stdout.split())
    alone = recollect("report", "shard2", cwd=tmp_path)
    assert alone.returncode == 0, alone.stdout
    merged = recollect("report", "shard1", "shard2", "--json", "-", cwd=tmp_path)
    assert merged.returncode == 0, merged.stderr
    assert len(cells(merged.stdout)) == 1


def test_interrupted_it_prints_what_is_known_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*RECOLLECT, "verify", "sqlite", "redis", "--out", "run"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    children: list[psutil.Process] = []
    while time.monotonic() < deadline and len(children) < 5:
        children = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert "interrupted" in output
    assert "sqlite" in output
    assert process.returncode == 3, "what was left out is not proven"
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive


def test_the_list_of_commands_has_whole_sentences() -> None:
    shown = CliRunner().invoke(build(["--help"]), ["--help"], env={"COLUMNS": "80"}).output
    listed = shown.partition("Commands:")[2].strip().splitlines()
    assert len(listed) == len(COMMANDS), "one line each"
    assert not [line for line in listed if "..." in line]


def test_the_list_of_faults_has_each_with_what_it_verifies_and_its_variants() -> None:
    words = ["verify", "--list-faults"]
    done = CliRunner().invoke(build(words), words, env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for fault in FAULTS.values():
        row = next(row for row in done.output.splitlines() if row.strip("● ").startswith(f"{fault.name} "))
        assert row.startswith("●") == (fault.name in CORE_FAULTS)
        assert fault.verifies[:40] in row
        assert all(f"@{variant}" in done.output for variant in fault.variants if variant)
