"""Whole runs on an engine with a password: nothing that is printed, saved or started has it, and replay asks for it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from recollect.verify.suite.service import Service
from tests.secret.canary import ENCODED, RAW, in_files, traces
from tests.stores.postgres_place import started as postgres_started
from tests.stores.redis_places import hands_on, started

PROJECT = str(Path(__file__).parent.parent.parent)
REPORTS = ("--json", "reports/all.json", "--html", "reports/page.html", "--junit", "reports/junit.xml")
CELL = "runs/000-{}.redis.custom.kill-app.append"


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with started("redis@7", "none") as engine:
        with hands_on(engine) as client:
            client.acl_setuser(
                "app", enabled=True, passwords=[f"+{RAW}"], categories=["+@all"], keys=["*"], channels=["*"]
            )
        yield f"redis://app:{ENCODED}@127.0.0.1:{engine.endpoint.port}/15"


def recollect(*arguments: str, cwd: Path, **environment: str) -> tuple[int, str]:
    """The exit code and all that was printed; no process but the first may have the password in its arguments."""
    as_typed = [
        sys.executable,
        "-m",
        "recollect",
        *arguments,
    ]  # also of its forks, until they run something else
    with (cwd / "said").open("w") as output:
        process = subprocess.Popen(
            as_typed,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": PROJECT, "COLUMNS": "100", **environment},
        )
    us = psutil.Process(process.pid)
    while process.poll() is None:
        time.sleep(0.02)
        try:
            for child in us.children(recursive=True):
                line = child.cmdline()
                assert line == as_typed or not traces(" ".join(line)), line
        except psutil.Error:  # it ended meanwhile
            continue
    return process.returncode, (cwd / "said").read_text()


def verify(target: str, url: str, cwd: Path, **environment: str) -> tuple[int, str]:
    common = ("--fault", "kill-app", "--workload", "append", "--no-confirm", "--out", "runs", *REPORTS)
    return recollect(
        "verify", target, "--engine", "redis", "--provider", url, *common, cwd=cwd, **environment
    )


def test_a_run_on_an_engine_with_a_password(redis_url: str, tmp_path: Path) -> None:
    code, said = verify("redis", redis_url, tmp_path)
    assert code == 0, said
    again, told = recollect("report", "runs", *REPORTS, cwd=tmp_path)
    assert again == 0, told
    asked, question = recollect("replay", CELL.format("redis"), "--times", "1", cwd=tmp_path)
    assert asked == 2
    assert "set RECOLLECT_REDIS_URL to the whole address" in question
    assert "redis://***@127.0.0.1:" in question
    given, replayed = recollect(
        "replay", CELL.format("redis"), "--times", "1", cwd=tmp_path, RECOLLECT_REDIS_URL=redis_url
    )
    assert given == 0, replayed
    assert "no anomaly in 1 of 1 runs" in replayed
    assert not traces(said + told + question + replayed)
    assert (tmp_path / CELL.format("redis") / "scenario.json").exists()
    assert not in_files(tmp_path)


def test_the_address_may_stay_in_the_environment(redis_url: str, tmp_path: Path) -> None:
    code, said = verify("redis", "url", tmp_path, RECOLLECT_REDIS_URL=redis_url)
    assert code == 0, said
    assert not traces(said)
    assert not in_files(tmp_path)
    code, said = verify("redis", "url", tmp_path)
    assert code == 2
    assert "set RECOLLECT_REDIS_URL to the address" in said


def test_what_a_store_says_about_its_address(redis_url: str, tmp_path: Path) -> None:
    target = "tests.secret.talkative:factory"
    _, said = verify(target, redis_url, tmp_path)
    cell = tmp_path / CELL.format(target.replace(":", "_"))
    assert "connecting to redis://***" in (cell / "target.log").read_text(), said
    assert "no answer from" not in said
    assert "ConnectionError" in (cell / "history.jsonl").read_text()
    code, refusal = verify("tests.secret.talkative:broken", redis_url, tmp_path)
    assert code == 2
    assert "cannot reach redis://***" in refusal
    assert not traces(said + refusal)
    assert not in_files(tmp_path)


def test_a_wrong_password_is_not_repeated_by_the_engine(redis_url: str, tmp_path: Path) -> None:
    code, said = verify("redis", redis_url.replace(ENCODED, f"{ENCODED}wrong"), tmp_path)
    assert code == 2, said
    assert "credentials right?" in said
    assert not traces(said)
    assert not in_files(tmp_path)


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    engine = postgres_started()
    engine.ask(f"ALTER ROLE postgres PASSWORD '{RAW}'")
    yield f"postgresql://postgres:{ENCODED}@127.0.0.1:{engine.endpoint.port}/postgres"
    engine.close()


def test_the_commands_for_postgres(postgres_url: str, tmp_path: Path) -> None:
    told = ("--fault", "kill-app", "--workload", "append", "--no-confirm", "--out", "runs", *REPORTS)
    for command in (
        ("migrate", postgres_url),
        ("doctor", postgres_url),
        ("doctor", "--json", postgres_url),
        ("verify", "postgres", "--provider", postgres_url, *told),
    ):
        code, said = recollect(*command, cwd=tmp_path)
        assert code in (0, 1), said
        assert not traces(said)
    assert (tmp_path / "runs" / "results.json").exists()
    assert not in_files(tmp_path)


def test_the_chat_service(postgres_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "recollect", "chat", "--memory", postgres_url, "--index", "none"]
    service = Service([*command, "--port", "{port}"], tmp_path)
    with contextlib.closing(service.start()):
        told = [
            httpx.get(f"{service.base_url}/{page}").text for page in ("", "health", "openapi.json", "nothing")
        ]
        answer = httpx.post(f"{service.base_url}/chat", json={"user": "u", "message": "hello"})
        service.stop()
    assert answer.status_code == 200, answer.text
    assert not traces("\n".join(told) + answer.text + service.log)
    assert not in_files(tmp_path)


SUITE = """
from recollect.pytest_plugin import MemoryStoreSuite

class TestTalkative(MemoryStoreSuite):
    factory = "tests.secret.talkative:factory"
    engine = "redis"
    fault = "kill-app"
    workload = "append"
    require = "fsynced"

def test_shows_its_variables(redis_engine, endpoint):
    engine, place = redis_engine, endpoint
    assert engine is None, "shown with all variables"
"""


VERBOSE = ("-p", "no:cacheprovider", "--showlocals", "-rA", "--junitxml=junit.xml", "-o", "addopts=")


def test_pytest_with_all_variables_shown(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "test_memory.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *VERBOSE, "--recollect-out=runs", "test_memory.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": PROJECT, "RECOLLECT_REDIS_URL": redis_url},
        check=False,
    )
    assert "shown with all variables" in done.stdout, done.stdout + done.stderr
    assert "place      = Endpoint(url='redis://***" in done.stdout
    assert list((tmp_path / "runs").rglob("history.jsonl")), done.stdout
    assert not traces(done.stdout + done.stderr)
    assert not in_files(tmp_path)
