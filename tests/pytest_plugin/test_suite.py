"""One factory becomes a suite: what passes, what fails and with which words, what is skipped."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.verify.suite import finding_texts

SUITES = """
import pytest
from recollect.pytest_plugin import MemoryStoreSuite
from shop_memory import ListMemory


class Base(MemoryStoreSuite):
    engine = "redis"

    @staticmethod
    def factory(endpoint):
        return ListMemory(endpoint.url)


class TestKept(Base):
    policy = "aof-everysec"
    fault = ("restart", "older-writer")


class TestDocumented(Base):
    policy = "rdb"
    fault = "kill-engine"


@pytest.mark.recollect(policy="rdb", fault="kill-engine", require="written")
class TestRequired(Base):
    pass


class TestExpiring(Base):
    policy = "aof-everysec"
    fault = "clock-forward"
    retain = "7d"

    @staticmethod
    def factory(endpoint):
        return ListMemory(endpoint.url, expire_s=300)


class TestBroken(Base):
    policy = "rdb"
    fault = "restart"

    @staticmethod
    def factory(endpoint):
        raise RuntimeError("no such setting")
"""


def test_every_verdict_has_its_words(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding_texts, "INVESTIGATE_S", 0.0)  # how it is made smaller is not the point here
    project.makepyfile(test_shop=SUITES)
    result = project.runpytest_inprocess("-rs", "-v", "--recollect-seed=11", "-p", "no:xdist")
    text = result.stdout.str()
    outcomes = dict(re.findall(r"test_shop.py::(\S+) (PASSED|FAILED|SKIPPED)", text))
    assert outcomes == {
        "TestKept::test_survives[aof-everysec-restart]": "PASSED",
        "TestKept::test_survives[aof-everysec-older-writer]": "SKIPPED",
        "TestDocumented::test_survives[rdb-kill-engine]": "PASSED",
        "TestRequired::test_survives[rdb-kill-engine]": "FAILED",
        "TestExpiring::test_survives[aof-everysec-clock-forward]": "FAILED",
        "TestBroken::test_survives[rdb-restart]": "FAILED",
    }
    assert "recollect: seed 11, 6 cells" in text
    assert "Traceback" not in text
    result.stdout.fnmatch_lines(
        [
            "*acknowledged messages lost*Promise: *",
            "The engine documents this loss, but the suite requires 'written'.",
            "on redis *, policy rdb, fault kill-engine, workload *, seed 11",
            "expired-early (silent), confirmed 3 of 3",
            "smallest run: there was no time to make it smaller",
            "on redis *, policy aof-everysec, fault clock-forward*, workload *, seed 11",
            "recollect replay *aof-everysec.clock-forward*",
            "*the factory raised RuntimeError: no such setting*",
            "*documented losses, and callers left unprotected*",
            "test_shop.py::TestDocumented::test_survives?rdb-kill-engine?",
            "*SKIPPED*needs the other release of your store*",
        ]
    )
    _replays(project, text)


def _replays(project: pytest.Pytester, text: str) -> None:
    """The command in the report runs as it stands there."""
    command = next(
        line for line in text.splitlines() if line.startswith("recollect replay") and "clock" in line
    )
    program = Path(sys.executable).with_name("recollect")
    again = subprocess.run(
        [str(program), *command.split()[1:], "--times", "1"], cwd=project.path, capture_output=True, text=True
    )
    assert "expired-early: seen in 1 of 1 runs" in again.stdout, again.stdout + again.stderr
    assert again.returncode == 1


def test_workers_of_xdist_share_seed_and_cells(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_shop="""
        from recollect.pytest_plugin import MemoryStoreSuite

        class TestMemory(MemoryStoreSuite):
            factory = "shop_memory:ListMemory.from_endpoint"
            engine = "redis"
            policy = ("rdb", "aof-always")
            fault = "restart"
        """
    )
    with (project.path / "lib" / "shop_memory.py").open("a") as module:
        module.write(
            "\n    @classmethod\n    def from_endpoint(cls, endpoint):\n        return cls(endpoint.url)\n"
        )
    result = project.runpytest_subprocess("-n2")
    result.assert_outcomes(passed=2)
    sessions = list((project.path / ".pytest_cache" / "d" / "recollect").iterdir())
    assert len(sessions) == 1, "a session is one folder, named by its seed, whatever worker a cell ran on"
    saved = sorted(path.parent.name for path in sessions[0].rglob("scenario.json"))
    assert saved == ["aof-always.restart.turns", "rdb.restart.turns"]


def test_modules_of_equal_names_are_kept_apart(project: pytest.Pytester) -> None:
    """The factory is found in the file it stands in, also where pytest does not import by name."""
    for name in ("one", "two"):
        folder = project.mkdir(name)
        (folder / "test_same.py").write_text(
            "from recollect.pytest_plugin import MemoryStoreSuite\n"
            "from shop_memory import ListMemory\n"
            f"class Test{name.title()}(MemoryStoreSuite):\n"
            "    engine, policy, fault = 'redis', 'rdb', 'restart'\n"
            "    @staticmethod\n"
            "    def factory(endpoint):\n"
            "        return ListMemory(endpoint.url)\n"
        )
    result = project.runpytest_inprocess("--import-mode=importlib", "-p", "no:xdist")
    result.assert_outcomes(passed=2)
