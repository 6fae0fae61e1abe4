"""What the pages about the doctor, reports and verdicts say is true: their commands run, their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.guarantees import promise
from tests.stores.redis_places import started

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = ("doctor.md", "reports.md", "verdicts.md")
EXIT_CODES = {"doctor.md": {1}, "reports.md": {0}, "verdicts.md": {0}}
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_links(page: str) -> None:
    for link in LINK.findall((DOCS / page).read_text()):
        assert (DOCS / link).exists(), link


@pytest.mark.parametrize("page", PAGES)
def test_commands(page: str, tmp_path: Path) -> None:
    commands = [line for block in BLOCK.findall((DOCS / page).read_text()) for line in block.splitlines()]
    assert commands
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with started("redis@7", "rdb") as engine:
        for command in commands:
            live = command.replace("localhost:6379", f"127.0.0.1:{engine.endpoint.port}")
            run = subprocess.run(
                live, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert run.returncode in EXIT_CODES[page], (command, run.stdout, run.stderr)
    if page == "reports.md":
        made = {path.name for path in tmp_path.iterdir()}
        assert made == {"runs", "report.html", "report.xml", "report.json", "again.html"}
        assert "<h1>Everything acknowledged was still there</h1>" in (tmp_path / "again.html").read_text()


def test_the_promise_that_is_quoted() -> None:
    assert promise("redis", "aof-everysec", "power-loss").sentence in (DOCS / "verdicts.md").read_text()
