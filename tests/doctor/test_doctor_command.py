"""`recollect doctor`: exit codes, JSON, and credentials that are shown nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.doctor import scrub, secrets_of, shown
from tests.stores.redis_places import hands_on, started

SECRET = "hun/ter2-\u00e4"
QUOTED = "hun%2Fter2-%C3%A4"


def doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from recollect.cli import main; main()", "doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_the_answer_of_a_live_engine_with_a_password() -> None:
    with started("redis@7", "aof-everysec") as engine:
        port = engine.endpoint.port
        with hands_on(engine) as client:
            client.acl_setuser(
                "app", enabled=True, passwords=[f"+{SECRET}"], commands=["+info", "+config|get"]
            )
        url = f"redis://app:{QUOTED}@127.0.0.1:{port}/0"
        text = doctor(url)
        assert text.returncode == 1
        assert "up to 2 s" in text.stdout
        assert "CONFIG SET appendfsync always" in text.stdout
        found = doctor("--json", RECOLLECT_URL=url)
        document = json.loads(found.stdout)
        assert found.returncode == 1
        assert document["status"] == "can-lose"
        assert document["address"] == f"redis://127.0.0.1:{port}"
        assert document["findings"][0]["window_s"] == 2.0
        wrong = doctor(url.replace(QUOTED, f"{QUOTED}x"))
        assert wrong.returncode == 3
        assert "no diagnosis" in wrong.stderr
        assert "refuses the login" in wrong.stderr
        assert "no answer" not in wrong.stderr
        told = doctor("--json", url.replace(QUOTED, f"{QUOTED}x"))
        assert told.returncode == 3
        assert json.loads(told.stdout)["status"] == "unknown"
        assert "refuses the login" in json.loads(told.stdout)["error"]
        for run in (text, found, wrong, told):
            assert SECRET not in run.stdout + run.stderr
            assert QUOTED not in run.stdout + run.stderr


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (f"redis://app:{QUOTED}@127.0.0.1:1/0", 3),
        (f"postgresql://app:{QUOTED}@127.0.0.1:1/db", 3),
        (f"postgresql://app@127.0.0.1:1/db?password={QUOTED}", 3),
        (f"postgresql://app:{QUOTED}@127.0.0.1:port/db", 2),
        (f"redis://app:{QUOTED}@127.0.0.1:1/notanumber", 2),
        (f"redis://app:{QUOTED}@127.0.0.1:1/0?{QUOTED}=1", 2),
        (f"http://app:{QUOTED}@127.0.0.1:1", 3),
        (f"mysql://app:{QUOTED}@127.0.0.1/db", 2),
        ("no-such-file.db", 2),
    ],
)
def test_errors_tell_the_code_and_no_credentials(url: str, code: int) -> None:
    run = doctor(url, "--timeout", "2")
    assert run.returncode == code, run.stderr
    assert run.stderr.startswith("recollect doctor: ")
    assert "Traceback" not in run.stderr
    assert SECRET not in run.stderr
    if url.count(QUOTED) == 1 and f"?{QUOTED}" not in url:
        assert QUOTED not in run.stderr


def test_exit_codes_of_files(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.touch()
    assert doctor(f"sqlite:///{path}?policy=wal-full").returncode == 0
    assert doctor(f"sqlite:///{path}?policy=wal-normal").returncode == 1
    assert doctor(str(path)).returncode == 3
    assert doctor().returncode == 2


def test_every_spelling_of_a_secret_is_scrubbed() -> None:
    url = f"postgresql://me:{QUOTED}@host/db?sslpassword=other%20one&application_name=shown"
    assert {SECRET, QUOTED, "other one", "other%20one"} <= set(secrets_of(url))
    assert scrub(f"bad {SECRET} {QUOTED} other one me", url) == "bad *** *** *** me"
    assert shown(url) == "postgresql://host/db"
